"""Runs the loop of a training, from a resolved configuration to an exit code.

    start ─► while steps < total:  collect ─► update ─► boundary ─► finish
             (build, resume)                               │
                snapshot, then a row of metrics, then what is due: monitor, evaluation, checkpoint, replay

A boundary is the moment after an update. Each takes a snapshot of all that a checkpoint holds; whatever ends
the run early (a signal, a dead worker, a NaN) drops the epoch in progress and saves the last snapshot. With
`vector.restart_workers` an epoch whose workers broke is repeated with new ones, from the last snapshot.

Exit codes: 0 trained to the end, 130 Ctrl-C, `run.preempt_exit_code` (143, or the scheduler's) SIGTERM, SIGHUP or a
notice that the machine ends, 1 a failure while training, or what `Interrupt.request` was given. Mistakes of the user
raise UserError (the command line exits with 2).

    from metta_fast.run.trainer import Trainer
    code = Trainer(resolve(compose(["env=counter"]))).run()
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import torch

from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import KeepsStates
from metta_fast.contracts.env import EnvError, EnvFactory
from metta_fast.contracts.errors import NonFiniteError, UserError
from metta_fast.contracts.vector import VectorError, WorkerError
from metta_fast.distributed.group import PeerFault, PeerLost, current
from metta_fast.distributed.peers import Peers
from metta_fast.machine.monitor import Monitor
from metta_fast.machine.output import tolerant_output
from metta_fast.metrics.loggers import Row
from metta_fast.metrics.machine_time import META, MachineTime, Place
from metta_fast.metrics.progress_text import keep
from metta_fast.metrics.solved import Solved, no_episode
from metta_fast.resolve import smaller_sizes
from metta_fast.resolve.resolve import Resolved
from metta_fast.run.build import Parts, build_parts
from metta_fast.run.callbacks import CallbackError, Callbacks
from metta_fast.run.clocks import Clocks, unmet
from metta_fast.run.evaluation import evaluate_policy, write_replay_page
from metta_fast.run.notices.places import find
from metta_fast.run.notices.watch import Watch
from metta_fast.run.processes.together import Together
from metta_fast.run.restart import restart_workers
from metta_fast.run.run_writer import Log, RunWriter, claim
from metta_fast.run.saver import Saver
from metta_fast.run.signals import Interrupt, Interrupted, Reason
from metta_fast.run.snapshot import Snapshot
from metta_fast.run.take_over.moved import moved
from metta_fast.run.take_over.remote_run import RemoteRun, begin
from metta_fast.run.take_over.same_rules import check_rules, same_number, unfit_states
from metta_fast.storage.altered import reading
from metta_fast.storage.checkpoint import Checkpoint
from metta_fast.storage.run_folder import RunDir, create

if TYPE_CHECKING:
    from metta_fast.policy import Policy


STOP_S = 2.5
"""Seconds that several processes have to end at a boundary together, with all their environments' states. After that
the first one saves what it has: the shortest notice of a cloud is 5 s."""
LOST_UPLOAD_S = 5.0
"""Longest upload once a process is lost: torchrun ends the others soon."""
LEAVE_S = 25.0
"""Most seconds that a process waits for the first one, which saves, before it ends: the launcher ends all processes
once one has."""


class Trainer:
    """Trains one run, or one session of a resumed run, with any algorithm (metta_fast/contracts/algorithm.py).

    Attributes:
        folder: the run's.
        metrics: the newest figure of each kind.
        stopped: why a callback wants the training to end, or None.
        failure: what ended the training, if it was neither its end, a callback's wish nor an interrupt.
        interrupted: whether a signal or `interrupt.request` ended the training.
        interrupt: ends the run at once, from any thread, by `interrupt.request(reason, exit_code)`.
    """

    log: Log

    def __init__(
        self,
        resolved: Resolved,
        *,
        folder: RunDir | None = None,
        start: Checkpoint | None = None,
        init: Checkpoint | None = None,
        remote: RemoteRun | None = None,
        callbacks: Callbacks | None = None,
        build: Callable[[Config, EnvFactory], Parts] = build_parts,
        rank: int = 0,
        began: float | None = None,
    ) -> None:
        """Makes a new run's folder unless one is given; starts nothing.

        Args:
            folder, start: of a resumed run (metta_fast/run/resume.py finds them). `start` None: from step 0;
                `folder` None with a `start`: a new run continues from that checkpoint.
            init: whose policy a new run begins with (metta_fast/run/take_over/fine_tune.py).
            remote: of a resumed run, its place in remote storage.
            build: makes the parts; tests put a fake algorithm in.
            rank: of this process among those of the run. Only rank 0 writes; the others are given its `folder`.
            began: time.monotonic() when the command began, for the machine time; None: now.
        """
        self._command_began = time.monotonic() if began is None else began
        self.resolved, self.config = resolved, resolved.config
        run = self.config.run
        self.folder = folder or create(run.dir, run.name, self.config.env.name)
        run.dir, run.name = str(self.folder.path.parent), self.folder.name
        self._unused = folder is None
        """A new folder, training not begun: it is removed if that fails."""
        self.start, self.init, self._remote = start, init, remote
        self._callbacks = callbacks or Callbacks()
        self._rank = rank
        self.metrics: Row = {}
        self.stopped: str | None = None
        self.failure: BaseException | None = None
        self.interrupted = False
        self._place = find(run.notices)
        self._group = current()
        self._together = Together(self._group)
        self._peers: Peers | None = None
        self.interrupt = Interrupt(self._place.signals, STOP_S if self._group.world > 1 else 0.0)
        self._notices: Watch | None = None
        self._build = build
        self._info: Row = {}
        """Statistics of the last epoch's episodes that the environments did not declare."""
        self._restarts = 0
        self._rows = 0
        """Rows of block 0 since the epoch began."""
        """How often workers were restarted in this session."""
        self._code = 1
        """What the run ends with: an error, until it is known better."""

    def run(self) -> int:
        """Trains and returns the exit code (see the module's docstring)."""
        with tolerant_output(), self.interrupt, ExitStack() as self._closing:
            if self._rank == 0:
                claim(self.folder, lambda: self._unused, self._closing)
                self._reach_remote()
            saved = -1 if self.start is None or self._unused else self.start.step
            self._spent = self._machine_time()
            self._writer = RunWriter(
                self.resolved,
                self.folder,
                saved,
                self._closing,
                rank=self._rank,
                begin=self.start is None,
                spent=self._spent,
                remote=self._remote,
            )
            self._saver = Saver(
                self.config.run,
                self._writer,
                saved,
                lambda path: self._callbacks.checkpoint(self, path),
                env=self.config.env.name,
            )
            self.log = self._writer.log
            self._await_notices()
            self._peers = Peers(self._group)
            self._code = self._run()
            self._leave()
        return self._code

    def _leave(self) -> None:
        """Ends this process's part in the run; rank 0, which saves, goes first."""
        assert self._peers is not None
        if not self._group.first:
            self._peers.wait_for(0, LEAVE_S)
        self._peers.ended()

    def _reach_remote(self) -> None:
        """Takes the run's place in remote storage, which a resumed run has already."""
        if self._remote is None and self.config.run.remote is not None:
            self._remote = begin(self.config.run.remote, self.folder)
            self.config.run.remote = str(self._remote.store.address.parent)
        if self._remote is not None:
            self._closing.callback(self._remote.close)

    def _machine_time(self) -> MachineTime:
        """Returns the machine time of the sessions before, with this one's counted on top."""
        on_gpu, found, start = self.config.trainer.device == "cuda", self.resolved.machine, self.start
        if on_gpu:
            name = found.gpus[0].name if found is not None and found.gpus else "GPU"
        else:
            name = f"{found.cores * self._group.place.local_world} cores" if found is not None else "CPU"
        place = Place("gpu" if on_gpu else "cpu", name, self._group.world if on_gpu else 1)
        if start is None:
            return MachineTime(self.folder.path, place, self._command_began)
        with reading(start.path, "meta.json"):
            return MachineTime(self.folder.path, place, self._command_began, start.step, start.meta.get(META))

    def _run(self) -> int:
        try:
            self._train()
            return 0
        except Interrupted as stop:
            return self._stopped(stop.reason)
        except (NonFiniteError, VectorError, EnvError) as error:
            if self.interrupt.reason is not None:  # it went to the workers as well, which were quicker
                return self._stopped(self.interrupt.reason)
            self._failed(error)
            self._writer.end(f"error: {error}\n{self._go_on('The last good state is kept')}")
            return 1
        except (PeerLost, PeerFault) as error:
            assert self._peers is not None
            why = self._peers.why_lost()
            if why is None and self.interrupt.reason is not None:
                return self._stopped(self.interrupt.reason)
            why = why or f"another process of this run does not answer ({error})"
            self._failed(error, tell=False)
            self._writer.end(f"error: {why}\n{self._go_on('The last good state is kept')}", LOST_UPLOAD_S)
            return 1
        except torch.OutOfMemoryError as error:
            self._failed(error, trace=False)
            raise UserError(smaller_sizes.out_of_memory_advice(self.config)) from error
        except UserError as error:
            self._failed(error, trace=False)
            raise
        except Exception as error:
            self._failed(error)
            raise

    def _train(self) -> None:
        with self.interrupt.allowed():
            self._begin()
        if self._rank == 0:
            self._closing.callback(self._end_callbacks)
            self._callbacks.start(self)
        while self.algorithm.steps < self.config.trainer.total_timesteps and self.stopped is None:
            self._epoch()
            self._boundary()
        self._save()
        self.interrupt.check()
        if self.config.run.replay_interval and self._replayed < self.algorithm.steps:
            self._replay()
        for text in unmet(self.config, self.metrics):
            self.log.say(text)
        spec, steps = self._parts.spec, self.algorithm.steps - self._begun_at
        agents = self.config.env.num_envs * spec.agents_per_env
        missing = no_episode(self.metrics, steps, agents, spec.max_steps)
        if missing is not None:
            self.log.say(missing)
        if self.stopped is not None:
            self._end(f"stopped: {self.stopped}. {self._go_on('The state is saved')}")
        else:
            self._end(f"trained to {self.algorithm.steps} steps; run {self.folder.path}")

    def _end(self, text: str) -> None:
        """Shows the last lines and waits for uploads; a signal ends the waiting."""
        self._writer.end(text, None, lambda: self.interrupt.reason is not None)

    # ── for callbacks ──

    def stop(self, reason: str = "by a callback") -> None:
        """Ends the training after this epoch, with a checkpoint."""
        self.stopped = reason

    @property
    def policy(self) -> Policy:
        """The network that learns."""
        return self._parts.policy

    @property
    def steps(self) -> int:
        """Agent steps so far."""
        return self.algorithm.steps

    @property
    def epoch(self) -> int:
        return self.algorithm.epoch

    # ── start ──

    def _begin(self) -> None:
        """Builds the parts, loads the checkpoint, takes the first snapshot."""
        start = self.start
        try:
            self._parts = parts = self._build(self.config, self.resolved.factory)
        except UserError as error:
            if self.init is None:
                raise
            raise UserError(
                f"{error}\n(the policy's keys are those of init_from={self.init.path})"
            ) from error
        self._closing.callback(self._close_parts, parts)
        self.log.say(f"run {self.folder.path}" + (f", continuing from step {start.step}" if start else ""))
        self.algorithm, self.vec = parts.algorithm, parts.vec
        self._writer.fast_paths(self.algorithm.fast_paths)
        self._with_env = self.config.trainer.deterministic or parts.spec.cheap_state
        if not parts.spec.has_final_obs:
            self.log.say("the environments provide no final observations: time limits count as terminals")
        if start is not None:
            self._load(start)
        elif self.init is not None:
            with reading(self.init.path, "algorithm.pt"):
                self.algorithm.start_from(
                    self.init.load("algorithm"), f"init_from={self.init.path / 'algorithm.pt'}"
                )
        self._writer.begin()
        self._writer.open_wandb(lambda: self._code)
        self._solved = Solved(self.config.trainer.stop_at_return, parts.spec)
        self._begun_at = self.algorithm.steps
        self._start_clocks()
        self._watch()
        self._unused = False
        if start is None:
            self._take(with_env=False)  # no block is held yet; a reset repeats it

    def _await_notices(self) -> None:
        """Has the run end in time if the cloud announces that it takes this machine away."""
        place = self._place
        if place.scheduler is not None:
            self.log.note(f"this job runs under {place.scheduler.name}")
        if place.cloud is not None and self._group.place.local_rank == 0:
            code = place.exit_code(self.config.run.preempt_exit_code)
            self.log.note(f"notices of {place.cloud} that this machine ends are awaited")
            self._notices = Watch(place.service, lambda why: self.interrupt.request(why, code))
            self._closing.callback(self._notices.close)

    def _watch(self) -> None:
        """Shows every step of environments on the CPU; those on the GPU take less than a second for an epoch."""
        watchers: list[Callable[[], None]] = getattr(self.vec, "watchers", [])
        watchers.append(self._moved)

    def _moved(self) -> None:
        """Counts a row of the epoch."""
        self._rows += 1
        rows = min(self._rows * self.vec.num_agents, self.config.trainer.batch_size)
        self._writer.moved(min(self.algorithm.steps + rows, self.config.trainer.total_timesteps))

    def _close_parts(self, parts: Parts) -> None:
        """Closes the parts. An environment that cannot be closed changes nothing about what was trained."""
        try:
            parts.close()
        except VectorError as error:
            self.log.note(traceback.format_exc())
            self.log.warn(str(error).partition("\n")[0])

    def _load(self, start: Checkpoint) -> None:
        check_rules(start, self.resolved.factory)
        for text in moved(start, self._spent.place, self.resolved):
            self.log.say(text)
        env, why = start.load("env"), "their state is not in the checkpoint"
        if env is not None and (other := unfit_states(start, self.resolved.factory, self.config.env)):
            env, why = None, other
        if env is None:
            self.log.say(f"the environments start new episodes: {why}")
        else:
            spec, envs = self._parts.spec, self.config.env.num_envs
            with reading(start.path, "env.pt"):
                self.vec.load_state_dict(self._together.part_of_env(env, envs, spec.agents_per_env))
        with reading(start.path, "algorithm.pt"):
            state = start.load("algorithm")
            if state is None:
                raise ValueError("the file is missing")
            agents = self.config.env.num_envs * self._parts.spec.agents_per_env
            state = self._together.part_of_algorithm(state, agents)
            self.algorithm.load_state_dict(state)
            if isinstance(self.algorithm, KeepsStates):
                self.algorithm.load_kept(start.kept() if same_number(start, self.config.env) else {})
            for name, here in (("step", self.algorithm.steps), ("epoch", self.algorithm.epoch)):
                if here != start.meta.get(name, here):
                    raise ValueError(f"it is of {name} {here}, but meta.json says {start.meta[name]}")

    def _start_clocks(self) -> None:
        """Starts the monitor and the clocks."""
        run, algorithm, start = self.config.run, self.algorithm, self.start
        monitor = None
        if run.monitor_interval and self._writer.writes:
            monitor = Monitor(self._parts.device)
            self._closing.callback(monitor.close)
        self._saver.start(algorithm.epoch)
        self._replayed = algorithm.steps
        seconds = 0.0 if start is None else float(start.value("seconds"))
        self._clocks = Clocks(
            run, epoch=algorithm.epoch, steps=algorithm.steps, seconds=seconds, monitor=monitor
        )

    # ── every epoch ──

    def _epoch(self) -> None:
        """Collects, learns, takes the snapshot; repeats that if workers broke and may be restarted."""
        broken = False
        while True:
            try:
                with self.interrupt.allowed():
                    if broken:
                        self._restart_workers()
                        broken = False
                    self._rows = 0
                    self.algorithm.collect()
                    self.algorithm.update()
                self._end_epoch()
                return
            except WorkerError as error:
                if self.interrupt.reason is not None or self._restarts >= self.config.vector.restart_workers:
                    raise
                broken = True
                self._restarts += 1
                self.log.note(traceback.format_exc())
                self.log.warn(str(error))

    def _restart_workers(self) -> None:
        """Returns to the last boundary, with a vector of new workers."""
        self._saver.snapshot, where = restart_workers(self._parts, self._saver.snapshot, self.start)
        self.vec = self._parts.vec
        self._watch()
        self.log.say(
            f"workers restarted ({self._restarts} of {self.config.vector.restart_workers}, "
            f"vector.restart_workers); {where}"
        )

    def _end_epoch(self) -> None:
        """Logs the notes of algorithm and environments, and takes the snapshot."""
        first_update = self._clocks.begin_boundary()
        if first_update is not None:
            self.log.note(f"first update after {first_update:.2f} s")
        while self.algorithm.notes:
            self.log.say(self.algorithm.notes.pop(0))
        if self._parts.spec.info_stats:
            self._info = {f"env/{name}": value for name, value in cast(Any, self.vec).info_stats().items()}
        if self._parts.spec.notes:
            for text in self.vec.notes():
                self.log.warn(text)
        self._take(with_env=self._with_env)

    def _boundary(self) -> None:
        """Writes a row of metrics, and does whatever is due."""
        assert self._saver.snapshot is not None
        epoch, steps, clocks = self.algorithm.epoch, self.algorithm.steps, self._clocks
        last = steps >= self.config.trainer.total_timesteps or self.stopped is not None
        evaluate = clocks.evaluate.due(epoch, last=last)
        if self._rank == 0 and (clocks.log.due(epoch, last=last) or evaluate):
            row = self.algorithm.metrics() | clocks.row(epoch, steps, last=last)
            row["train/seconds"] = self._saver.snapshot.seconds
            row = self._info | row
            solved, stop = self._solved.see(row, steps)
            for goal in self._solved.reached:
                self._spent.reach(goal, steps)
            row |= self._spent.row(steps)
            if solved is not None:
                self.log.say(solved)
            if stop is not None:
                self.stop(stop)
            if self.config.vector.restart_workers:
                row["perf/worker_restarts"] = self._restarts
            if evaluate and (figures := self._evaluate()):
                row |= figures
                clocks.leave_out(row["eval/seconds"])
            self._write(row)
        save = evaluate
        self._writer.news()
        if self._notices is not None:
            for text in self._notices.news():
                self.log.warn(text)
            save |= self._notices.take_save()
        save |= self._saver.due(epoch)
        orders = self._together.exchange(save=save, stopped=self.stopped, reason=self.interrupt.reason)
        self.stopped = orders.stopped
        if orders.save or orders.reason is not None:
            self._save()
        if orders.reason is not None:
            self.interrupt.agree(orders.reason)
        if clocks.replay.due(epoch):
            self._replay()
        clocks.end_boundary()

    def _save(self) -> None:
        """Saves the last snapshot, with all processes' environments. All processes call it at the same boundary."""
        pending = self._saver.pending
        if pending is not None:
            self._saver.save(self._together.whole(pending))

    def _evaluate(self) -> Row:
        """Returns eval/* figures: none if a signal ended the evaluation. The run ends after this boundary then."""
        try:
            with self.interrupt.allowed():
                return evaluate_policy(self.config, self.resolved.factory, self._parts, self.interrupt.check)
        except Interrupted as stop:
            self.log.say(f"the evaluation at step {self.algorithm.steps} was left out ({stop.reason.text})")
            return {}

    def _take(self, *, with_env: bool) -> None:
        """Takes a snapshot."""
        algorithm = self.algorithm
        env = algorithm.env_state() if with_env else None
        states = {"algorithm": algorithm.state_dict(), "env": env}
        if isinstance(algorithm, KeepsStates):
            states |= algorithm.kept_states()
        self._saver.take(Snapshot(algorithm.steps, algorithm.epoch, states, self._clocks.seconds()))

    def _write(self, row: Row) -> None:
        self._saver.score.add(row)
        self._writer.write(self.algorithm.steps, row)
        self.metrics.update(keep(row))
        self._callbacks.epoch(self, row)

    def _replay(self) -> None:
        self._replayed = self.algorithm.steps
        if self._writer.writes:
            with self.interrupt.allowed():
                write_replay_page(
                    self.config,
                    self.resolved.factory,
                    self._parts.policy,
                    self.folder,
                    self._replayed,
                    self.log,
                    self.interrupt.check,
                )

    # ── end ──

    def _end_callbacks(self) -> None:
        try:
            self._callbacks.end(self)
        except CallbackError as error:
            if self.failure is None and not self.interrupted:
                raise
            self.log.warn(str(error))

    def _failed(self, error: BaseException, *, trace: bool = True, tell: bool = True) -> None:
        """Keeps the error and saves the last snapshot.

        Args:
            trace: the traceback goes to train.log.
            tell: the other processes are told; False: they know, or it is theirs.
        """
        self.failure = error
        text = traceback.format_exc() if trace else str(error)
        if trace:
            self.log.note(text)
        if tell and self._group.world > 1:
            assert self._peers is not None
            self._peers.failed(text)
            if not self._group.first and not isinstance(error, UserError):
                print(f"process {self._group.rank}: {text}", file=sys.stderr, flush=True)
        self._save_alone()

    def _save_alone(self) -> None:
        """Saves the last snapshot while the other processes may be gone: without their environments."""
        pending = self._saver.pending
        self._saver.save_last(None if pending is None else self._together.alone(pending))

    def _stopped(self, reason: Reason) -> int:
        """Saves the last snapshot and returns the exit code."""
        self.interrupted = True
        self._save_alone()
        said = f"stopped: {reason.text}"
        if reason.signum is not None:
            said = f"stopped by {reason.text}{self._place.said(reason.signum)}"
        left = self._place.seconds_left(reason.signum)
        if self._group.world > 1:
            left = min(left, LEAVE_S - 5.0)
        self._writer.end(f"{said}. {self._go_on('The state is saved')}", left)
        if reason.exit_code is not None:
            return reason.exit_code
        if reason.signum == signal.SIGINT:
            return 130
        return self._place.exit_code(self.config.run.preempt_exit_code, reason.signum)

    def _go_on(self, text: str) -> str:
        return self._saver.go_on(text, self.folder.path)
