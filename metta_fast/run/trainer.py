"""The loop of a run, from a resolved configuration to an exit code.

    start ─► while steps < total:  collect ─► update ─► boundary ─► finish
             (build, resume)                               │
                snapshot, then a row of metrics, then what is due: monitor, evaluation, checkpoint, replay

A boundary is the moment after an update. Each takes a snapshot of all that a checkpoint holds; whatever ends
the run early (a signal, a dead worker, a NaN) drops the epoch in progress and saves the last snapshot. With
`vector.restart_workers` an epoch whose workers broke is done again with new ones, from the last snapshot.

Exit codes: 0 trained to the end, 130 Ctrl-C, `run.preempt_exit_code` (143) SIGTERM or SIGHUP, 1 a failure
while training. Mistakes of the user raise UserError (the command line exits with 2).

    from metta_fast.run.trainer import Trainer
    code = Trainer(resolve(compose(["env=counter"]))).run()
"""

from __future__ import annotations

import dataclasses
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from metta_fast.config.keys import Config, config_to_dict
from metta_fast.contracts.env import EnvError, EnvFactory
from metta_fast.contracts.errors import NonFiniteError, UserError
from metta_fast.contracts.vector import VectorError, WorkerError
from metta_fast.machine.monitor import Monitor
from metta_fast.machine.process_clock import process_age
from metta_fast.metrics.dashboard import keep
from metta_fast.metrics.loggers import Row
from metta_fast.resolve import smaller_sizes
from metta_fast.resolve.resolve import Resolved
from metta_fast.run.build import Parts, build_parts
from metta_fast.run.callbacks import CallbackError, Callbacks
from metta_fast.run.run_writer import Record
from metta_fast.run.signals import Interrupt, Interrupted
from metta_fast.run.snapshot import Interval, Score, Snapshot, Speed
from metta_fast.storage import checkpoint
from metta_fast.storage.checkpoint import Checkpoint
from metta_fast.storage.run_folder import RunDir, RunLocked, create
from metta_fast.version import __version__


class Trainer:
    """One run, or one session of a resumed run. It knows an algorithm only by metta_fast/contracts/algorithm.py."""

    def __init__(
        self,
        resolved: Resolved,
        *,
        folder: RunDir | None = None,
        start: Checkpoint | None = None,
        init: Checkpoint | None = None,
        callbacks: Callbacks | None = None,
        build: Callable[[Config, EnvFactory], Parts] = build_parts,
    ) -> None:
        """Nothing is started; a new run's folder is made unless one is given.

        Args:
            folder, start: of a resumed run (metta_fast/run/resume.py finds them). `start` None: from step 0.
            init: whose policy a new run begins with (metta_fast/run/fine_tune.py).
            build: makes the parts; tests put a fake algorithm in.
        """
        self.resolved, self.config = resolved, resolved.config
        run = self.config.run
        self.folder = folder or create(run.dir, run.name, self.config.env.name)
        run.dir, run.name = str(self.folder.path.parent), self.folder.name
        self._unused = folder is None
        """A new folder, training not begun: it is taken away again if that fails."""
        self.start, self.init = start, init
        self._callbacks = callbacks or Callbacks()
        self.metrics: Row = {}
        """The newest figure of each kind."""
        self.stopped: str | None = None
        """Why a callback wants the training to end."""
        self.failure: BaseException | None = None
        """What ended the training, if it was neither its end, a callback's wish nor a signal."""
        self.interrupted = False
        """A signal ended the training."""
        self._build = build
        self._snapshot: Snapshot | None = None
        self._boundary_s = 0.0
        """Seconds that the last boundary took: snapshot, metrics, checkpoint."""
        self._boundary_began = 0.0
        """When the present one began."""
        self._restarts = 0
        """How often workers were started anew in this session."""
        self._first_update: Row = {}
        """Seconds from the process's start to the end of the first update, for every row."""
        self._saved = -1 if start is None else start.step
        self._code = 1
        """What the run ends with: an error, until it is known better."""
        self._seconds = 0.0 if start is None else float(start.meta["seconds"])

    def run(self) -> int:
        """Train; see the module's docstring for what comes back."""
        with Interrupt() as interrupt, ExitStack() as self._closing:
            self._lock()
            self._record = Record(self.resolved, self.folder, self._saved, self._closing)
            self.log = self._record.log
            self._code = self._run(interrupt)
        return self._code

    def _run(self, interrupt: Interrupt) -> int:
        try:
            self._train(interrupt)
            return 0
        except Interrupted as stop:
            return self._stopped(stop.signum)
        except (NonFiniteError, VectorError, EnvError) as error:
            if interrupt.signum is not None:  # it went to the workers as well, which were quicker
                return self._stopped(interrupt.signum)
            self.failure = error
            self.log.note(traceback.format_exc())
            self._save_last()
            self._record.end(f"error: {error}\n{self._go_on('The last good state is kept')}")
            return 1
        except torch.OutOfMemoryError as error:
            self.failure = error
            self._save_last()
            raise UserError(smaller_sizes.out_of_memory_advice(self.config)) from error
        except UserError as error:
            self.failure = error
            self._save_last()
            raise
        except Exception as error:
            self.failure = error
            self.log.note(traceback.format_exc())
            self._save_last()
            raise

    def _train(self, interrupt: Interrupt) -> None:
        with interrupt.allowed():
            self._begin()
        self._closing.callback(self._end_callbacks)
        self._callbacks.start(self)
        while self.algorithm.steps < self.config.trainer.total_timesteps and self.stopped is None:
            self._epoch(interrupt)
            self._boundary()
        self._save()
        if self.config.run.replay_interval and self._replayed < self.algorithm.steps:
            self._replay()
        if self.stopped is not None:
            self._record.end(f"stopped: {self.stopped}. {self._go_on('The state is saved')}")
        else:
            self._record.end(f"trained to {self.algorithm.steps} steps; run {self.folder.path}")

    # ── for callbacks ──

    def stop(self, reason: str = "by a callback") -> None:
        """End the training after this epoch, with a checkpoint."""
        self.stopped = reason

    @property
    def policy(self) -> Any:
        """The network that learns (metta_fast.policy.Policy)."""
        return self._parts.policy

    @property
    def steps(self) -> int:
        """Agent steps so far."""
        return self.algorithm.steps

    @property
    def epoch(self) -> int:
        return self.algorithm.epoch

    # ── start ──

    def _lock(self) -> None:
        """Take the folder; a new one that comes to nothing is removed before it is given back."""
        try:
            self.folder.lock()
        except RunLocked:
            raise  # another process was quicker: it is that one's now
        except UserError:
            self._remove_unused()
            raise
        self._closing.callback(self.folder.unlock)
        self._closing.callback(self._remove_unused)

    def _remove_unused(self) -> None:
        if self._unused:
            self.folder.remove()

    def _begin(self) -> None:
        """Build the parts, load the checkpoint, take the first snapshot."""
        run, start = self.config.run, self.start
        try:
            self._parts = parts = self._build(self.config, self.resolved.factory)
        except UserError as error:
            if self.init is None:
                raise
            raise UserError(
                f"{error}\n(the policy's keys are those of init_from={self.init.path})"
            ) from error
        self._closing.callback(parts.close)
        self.log.say(f"run {self.folder.path}" + (f", going on from step {start.step}" if start else ""))
        self.algorithm, self.vec = parts.algorithm, parts.vec
        self._with_env = self.config.trainer.deterministic or parts.spec.cheap_state
        if not parts.spec.has_final_obs:
            self.log.say("the environments give no final observations: a time limit counts as a terminal")
        if start is not None:
            env = start.load("env")
            if env is None:
                self.log.say("the environments start new episodes: their state is not in the checkpoint")
            else:
                self.vec.load_state_dict(env)
            self.algorithm.load_state_dict(start.load("algorithm"))
        elif self.init is not None:
            self.algorithm.start_from(self.init.load("algorithm"), f"init_from={self.init.path}")
        if self.config.wandb.mode != "disabled":
            self._open_wandb()
        epoch = self.algorithm.epoch
        self._monitor: Monitor | None = None
        if run.monitor_interval:
            self._monitor = Monitor(parts.device)
            self._closing.callback(self._monitor.close)
        self._score = Score()
        self._log_due = Interval(run.log_interval, epoch=epoch)
        self._monitor_due = Interval(run.monitor_interval, min_s=run.min_interval_s, epoch=epoch)
        self._evaluate_due = Interval(run.evaluate_interval, min_s=run.min_interval_s, epoch=epoch)
        self._save_due = Interval(
            run.checkpoint_interval, min_s=run.min_interval_s, max_s=run.checkpoint_max_s, epoch=epoch
        )
        self._replay_due = Interval(run.replay_interval, min_s=run.min_interval_s, epoch=epoch)
        self._replayed = self.algorithm.steps
        self._speed = Speed(self.algorithm.steps)
        self._began = time.monotonic()
        self._unused = False
        if start is None:
            self._snapshot = self._take(with_env=False)  # no block is held yet; a reset repeats it

    def _open_wandb(self) -> None:
        from metta_fast.metrics.wandb_logger import WandbLogger

        logger = WandbLogger(self.config, self.folder)
        self._record.add(logger, lambda: logger.close(self._code))

    # ── every epoch ──

    def _epoch(self, interrupt: Interrupt) -> None:
        """Collect, learn, take the snapshot; where workers broke and may be started anew, once more."""
        broken = False
        while True:
            try:
                with interrupt.allowed():
                    if broken:
                        self._restart_workers()
                        broken = False
                    self.algorithm.collect()
                    self.algorithm.update()
                self._end_epoch()
                return
            except WorkerError as error:
                if interrupt.signum is not None or self._restarts >= self.config.vector.restart_workers:
                    raise
                broken = True
                self._restarts += 1
                self.log.note(traceback.format_exc())
                self.log.warn(str(error))

    def _restart_workers(self) -> None:
        """Go back to the last boundary, with a vector of new workers."""
        snapshot, start = self._snapshot, self.start
        if snapshot is not None:
            step, algorithm, env = snapshot.step, snapshot.states["algorithm"], snapshot.states["env"]
            env = env() if callable(env) else env
        else:  # the first epoch of a resumed run
            assert start is not None
            step, algorithm, env = start.step, start.load("algorithm"), start.load("env")
        self._parts.restart(algorithm, env)
        self.vec = self._parts.vec
        if snapshot is not None:  # loading may have taken its tensors, which training changes
            states = {"algorithm": self.algorithm.state_dict(), "env": env}
            self._snapshot = dataclasses.replace(snapshot, states=states)
        self.log.say(
            f"workers are started anew ({self._restarts} of {self.config.vector.restart_workers}, "
            f"vector.restart_workers); the run goes on from step {step}"
            + ("" if env is not None or step == 0 else " with new episodes")
        )

    def _end_epoch(self) -> None:
        """What the workers are asked for at a boundary: their notes and their state."""
        self._boundary_began = time.perf_counter()
        if not self._first_update:
            self._first_update = {"perf/first_update_s": process_age()}
            self.log.note("first update after {perf/first_update_s:.2f} s".format_map(self._first_update))
        while self.algorithm.notes:
            self.log.say(self.algorithm.notes.pop(0))
        if self._parts.spec.notes:
            for text in self.vec.notes():
                self.log.warn(text)
        self._snapshot = self._take(with_env=self._with_env)

    def _boundary(self) -> None:
        """Row of metrics, and whatever is due."""
        assert self._snapshot is not None
        epoch, began = self.algorithm.epoch, self._boundary_began
        evaluate = self._evaluate_due.due(epoch)
        if self._log_due.due(epoch) or evaluate:
            row = self.algorithm.metrics() | self._speed.row(self.algorithm.steps)
            row |= {"train/seconds": self._snapshot.seconds, "perf/time/boundary": self._boundary_s}
            row |= self._first_update
            if self.config.vector.restart_workers:
                row["perf/worker_restarts"] = self._restarts
            if self._monitor is not None and self._monitor_due.due(epoch):
                row |= self._monitor.read()
            if evaluate:
                row |= self._evaluate()
                self._speed.leave_out(row["eval/seconds"])
                began += row["eval/seconds"]
            self._write(row)
        if self._save_due.due(epoch) or evaluate:
            self._save()
        if self._replay_due.due(epoch):
            self._replay()
        self._boundary_s = time.perf_counter() - began

    def _take(self, *, with_env: bool) -> Snapshot:
        states = {
            "algorithm": self.algorithm.state_dict(),
            "env": self.algorithm.env_state() if with_env else None,
        }
        return Snapshot(
            self.algorithm.steps, self.algorithm.epoch, states, self._seconds + time.monotonic() - self._began
        )

    def _write(self, row: Row) -> None:
        self._score.add(row)
        self._record.write(self.algorithm.steps, row)
        self.metrics.update(keep(row))
        self._callbacks.epoch(self, row)

    def _evaluate(self) -> Row:
        """eval/* figures, with the seconds that it took: they count in no speed and no phase."""
        from metta_fast.inference.evaluate import evaluate

        run, began = self.config.run, time.perf_counter()
        row = evaluate(
            self.resolved.factory,
            self._parts.policy,
            device=self._parts.device,
            num_envs=run.evaluate_episodes,
            seed=self.config.seed if run.evaluate_seed is None else run.evaluate_seed,
            deterministic=run.evaluate_deterministic,
            max_steps=self.config.env.max_steps,
        )
        return row | {"eval/seconds": time.perf_counter() - began}

    def _replay(self) -> None:
        """Write a replay. What fails there is told, and the training goes on."""
        from metta_fast.episodes.training import write_replay

        self._replayed = self.algorithm.steps
        try:
            path = write_replay(
                self.config, self.resolved.factory, self._parts.policy, self.folder, self._replayed
            )
        except (OSError, EnvError, UserError) as error:
            self.log.warn(f"no replay of step {self._replayed}: {error}")
        else:
            self.log.note(f"replay {path}")

    # ── end ──

    def _save(self) -> None:
        """Write the last snapshot, unless it is on disk already or its weights are not finite."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.step <= self._saved:
            return
        if not snapshot.finite():
            self.log.warn(f"the weights at step {snapshot.step} are not finite: no checkpoint of them")
            return
        meta = {
            "epoch": snapshot.epoch,
            "seconds": snapshot.seconds,
            "score": self._score.value(),
            "config": config_to_dict(self.config),
            "origins": self.resolved.origins,
            "version": __version__,
            "torch": torch.__version__,
        }
        states = {name: state() if callable(state) else state for name, state in snapshot.states.items()}
        self._record.sync()
        path = checkpoint.save(self.folder.checkpoints, snapshot.step, states, meta)
        try:
            checkpoint.prune(self.folder.checkpoints, self.config.run.keep_checkpoints)
        except OSError as error:
            self.log.warn(f"an old checkpoint cannot be removed: {error}")
        self._saved = snapshot.step
        self._score.clear()
        self._save_due.restart(snapshot.epoch)
        self.log.note(f"checkpoint {path}")
        self._callbacks.checkpoint(self, path)

    def _save_last(self) -> None:
        """`_save` while the run ends for another reason: what a callback raises is told and no more."""
        try:
            self._save()
        except CallbackError as error:
            self.log.warn(str(error))

    def _end_callbacks(self) -> None:
        try:
            self._callbacks.end(self)
        except CallbackError as error:
            if self.failure is None and not self.interrupted:
                raise
            self.log.warn(str(error))

    def _stopped(self, signum: int) -> int:
        name = "Ctrl-C" if signum == signal.SIGINT else signal.Signals(signum).name
        self.interrupted = True
        self._save_last()
        self._record.end(f"stopped by {name}. {self._go_on('The state is saved')}")
        return 130 if signum == signal.SIGINT else self.config.run.preempt_exit_code

    def _go_on(self, text: str) -> str:
        if self._saved < 0:
            return "Nothing was learnt yet: there is no checkpoint."
        return f"{text} at step {self._saved}; go on with resume={self.folder.path}"
