"""Implements vector.backend=workers: processes over shared memory, each with a range of environments.

    parent ──Popen──► launcher ──fork──► worker 0 … worker W−1      crew.py, launcher.py, worker.py
      │                  │                  │
      │◄═══ socket ══════╡ EOF: kill all    │      exits of workers, with their status
      │◄═══ socket, pipe of last words ═════╡      states; tracebacks
      └──────── shared memory (memfd): board (board.h), slab ────────►

The launcher is a fork server of our own: a fresh interpreter, so that the caller's main module, threads and
CUDA are never copied; it reaps the workers, reports their deaths, and kills all of them when the parent is gone.
Nothing has a name in the file system, so nothing is left there after a crash.
"""

from __future__ import annotations

import mmap
import os
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import cloudpickle

from metta_fast.contracts import batch_state as states
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import EnvRange, slab_size, slices, split
from metta_fast.contracts.vector import WorkerError
from metta_fast.envs.native._sync import NOTHING, Board, Memory, board_size
from metta_fast.machine.spin import spin_seconds
from metta_fast.vector.base import LOOK_S, BaseVector
from metta_fast.vector.crew import Crew, anonymous_file, cannot_start, ending
from metta_fast.vector.job import Job
from metta_fast.vector.messages import Closed, Stalled, Unreadable, exchange
from metta_fast.vector.worker import READY

START_S = 60.0
"""Seconds for a worker to start Python and import, or worker_timeout_s if that is longer."""
CLOSE_S = 3.0
"""Seconds that close waits for environments to close themselves before the workers are killed."""


class WorkersVector(BaseVector):
    """Steps environments in worker processes over shared memory."""

    def __init__(
        self,
        factory: EnvFactory,
        envs: EnvRange,
        num_blocks: int,
        worker_timeout_s: float,
        num_workers: int,
        num_threads: int,
    ) -> None:
        spec = factory.spec
        size = slab_size(spec, envs.count * spec.agents_per_env)
        self.slices = slices(envs.count, num_blocks, num_workers)
        self.worker_ranges = split(envs.count, num_workers)
        of_block = [[s.worker for s in self.slices if s.block == b] for b in range(num_blocks)]
        board = -(-board_size(num_workers, num_blocks) // mmap.PAGESIZE) * mmap.PAGESIZE
        pickled = _pickled(factory)
        fd = -1
        try:
            fd = anonymous_file(board + size)
            memory = Memory(board + size, fd)
            super().__init__(factory, envs, num_blocks, worker_timeout_s, memory, board)
            self.board = Board(
                memory,
                num_workers,
                [(w[0], w[-1] + 1) for w in of_block],
                spin_s=spin_seconds(num_workers * num_threads),
            )
            self.ready = self.board.ready
            job = Job(
                factory=pickled,
                preload=_own_module(factory),
                spec=spec,
                envs=envs,
                num_workers=num_workers,
                num_threads=num_threads,
                slices=self.slices,
                board_size=board,
                memory_size=memory.size,
                spin_s=spin_seconds(num_workers * num_threads),
            )
            self._crew = Crew(job, fd)
        except OSError as error:
            raise cannot_start(num_workers, error) from error
        finally:
            if fd >= 0:
                os.close(fd)
        self._finalizer = weakref.finalize(self, Crew.dismiss, self._crew)
        self._waiting = [0.0] * num_workers
        """For each worker: seconds that recv has waited while it was busy and finished nothing."""
        self._progress = [0] * num_workers
        self._await_start()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids by worker."""
        return list(self._crew.pids)

    # ---- hooks ----

    def _reset(self, seed: int, stagger: bool) -> None:
        for b in range(len(self.blocks)):
            self.board.reset(b, seed, stagger)

    def _step(self, index: int) -> None:
        self.board.step(index)

    def _arrived(self, index: int) -> None:
        pass

    def _hangs(self, passed: float) -> bool:
        for w in range(len(self._waiting)):
            progress = self.board.progress(w)
            if progress != self._progress[w] or not self.board.is_busy(w):
                self._waiting[w] = 0.0
            else:
                self._waiting[w] += min(passed, 2 * LOOK_S)
            self._progress[w] = progress
        return max(self._waiting) > self.worker_timeout_s

    def _hung(self) -> NoReturn:
        self._name_hung(
            max(range(len(self._waiting)), key=self._waiting.__getitem__),
            f" for {self.worker_timeout_s} s (vector.worker_timeout_s)",
        )

    def _look(self) -> None:
        if self._crew.has_news():
            self._fault()

    def _fault(self, closed: int | None = None) -> NoReturn:
        """Raises WorkerError for a worker's exception, or for a death that the launcher reported.

        Args:
            closed: a worker that has closed its socket.
        """
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            for w in range(len(self.worker_ranges)):
                if self.board.raised(w):
                    env = self.board.fault_env(w)
                    self._fail(self._raised(w), env=env if env >= 0 else None, worker=w)
            death = self._crew.death()
            if death is not None:
                self._died(*death)
            time.sleep(0.002)
        if closed is not None:
            self._name_hung(closed, "")
        self._fail("a worker failed without a traceback or an exit status")

    def _raised(self, w: int) -> str:
        """Describes the exception that a worker has reported: one line, then its traceback."""
        env, text = self.board.fault_env(w), self._crew.traceback(w)
        if env < 0:
            return f"{self._name(w)} {text or 'raised an exception'}"
        return f"{self._name(w)}: {text or f'environment {env} raised an exception'}"

    def _died(self, w: int, status: int | None) -> NoReturn:
        """Raises WorkerError for a death that the launcher reported, or for its own (w = −1)."""
        if w < 0:
            self._fail(
                f"the process that started the workers {ending(status)}, so all workers have ended; "
                "if it printed an error, that is above"
            )
        words = self._crew.last_words(w)
        if status is not None and os.WIFEXITED(status) and not words:
            words = (
                "something in it ended the process without an exception (os._exit, or a library that does so)"
            )
        self._fail(f"{self._name(w)} {ending(status)}" + (f"\n{words}" if words else ""), worker=w)

    def _env_states(self) -> list[states.State]:
        parts = self._ask_all("state", [None] * len(self.worker_ranges))
        found = {
            s: part
            for w, replies in enumerate(parts)
            for s, part in zip([s for s in self.slices if s.worker == w], replies)
        }
        return [found[s] for s in self.slices]

    def _notes(self) -> list[dict[str, str]]:
        parts = self._ask_all("notes", [None] * len(self.worker_ranges))
        return [notes for part in parts for notes in part]

    def _info_sums(self) -> list[dict[str, tuple[float, int]]]:
        parts = self._ask_all("info", [None] * len(self.worker_ranges))
        return [sums for part in parts for sums in part]

    def _load_env_states(self, state: states.State) -> None:
        self._ask_all(
            "load",
            [
                [states.cut(state, s.start, s.stop) for s in self.slices if s.worker == w]
                for w in range(len(self.worker_ranges))
            ],
        )

    def _stop(self, broken: bool = False) -> None:
        raised: list[int] = []
        try:
            if not broken and self._crew.is_mine():
                raised = self._close_environments()
            text = "\n".join(self._raised(w) for w in raised)
            env = self.board.fault_env(raised[0]) if raised else -1
        finally:
            self._crew.dismiss()
            self._finalizer.detach()
        if raised:
            raise WorkerError(
                f"closing the environments raised an exception: {text}",
                env=env if env >= 0 else None,
                worker=raised[0],
            )

    def _close_environments(self) -> list[int]:
        """Has the workers close their environments and end. Returns the workers in which that raised."""
        before = {w for w in range(len(self.worker_ranges)) if self.board.raised(w)}
        for w, link in enumerate(self._crew.links):
            with suppress(OSError):  # it died: the launcher ends the others
                link.post(("close", None))
                link.push()  # the socket is empty; what it does not take is not sent, and the worker is killed
                self.board.message(w)
        self._crew.wait(CLOSE_S)
        return [w for w in range(len(self.worker_ranges)) if self.board.raised(w) and w not in before]

    # ---- messages by socket ----

    def _await_start(self) -> None:
        """Waits until every worker has made its environments: START_S for Python and the imports, then worker_timeout_s
        for each environment."""
        waiting = list(range(len(self.worker_ranges)))
        doing, patience = "starting", max(START_S, self.worker_timeout_s)
        while waiting:
            replies = dict(zip(waiting, self._replies(doing, patience, waiting)))
            for w, (pid, _) in replies.items():
                self._crew.pids[w] = pid
            waiting = [w for w, (_, stage) in replies.items() if stage != READY]
            doing, patience = "making environments (vector.worker_timeout_s)", self.worker_timeout_s

    def _ask_all(self, command: str, arguments: list[Any]) -> list[Any]:
        """Sends a command to each worker and returns the replies, by worker."""
        for w, argument in enumerate(arguments):
            try:
                self._crew.links[w].post((command, argument))
            except Exception as error:
                self._fail(
                    f"the message ({command}) to {self._name(w)} cannot be pickled: {type(error).__name__}: {error}",
                    worker=w,
                    cause=error,
                )
        for w in range(len(arguments)):
            self.board.message(w)
        return [reply for _, reply in self._replies(f"answering ({command})", self.worker_timeout_s)]

    def _replies(self, doing: str, patience_s: float, workers: Sequence[int] | None = None) -> list[Any]:
        """Sends what is posted and returns one reply of each worker, or of each of `workers`.

        Raises:
            WorkerError: a worker failed, or nothing moved for patience_s seconds. After any other exception (Ctrl-C)
                the vector is closed as well, since messages are incomplete.
        """
        among = range(len(self.worker_ranges)) if workers is None else workers
        try:
            return exchange([self._crew.links[w] for w in among], self._crew.link, self._check, patience_s)
        except Stalled as stalled:
            hung = [among[i] for i in stalled.links]
            stopped = [w for w in hung if self._crew.state(w) == "stopped"]
            self._name_hung((stopped or hung)[0], f" for {patience_s} s while {doing}")
        except Closed as closed:
            self._fault(closed.links[0] if closed.links[0] < 0 else among[closed.links[0]])
        except Unreadable as error:
            w, cause = among[error.links[0]], error.__cause__
            self._fail(
                f"{self._name(w)} sent a message that cannot be read while {doing}: {type(cause).__name__}: {cause}",
                worker=w,
                cause=cause,
            )
        except BaseException as error:
            self._break(
                f"the vector is closed since {type(error).__name__} interrupted a message to its workers"
            )
            raise

    def _check(self) -> None:
        if self.ready.wait(0.0) != NOTHING or self._crew.has_news():
            self._fault()

    # ---- naming ----

    def _name(self, w: int) -> str:
        pid = self._crew.pids[w]
        return f"worker {w} (pid {pid}, {self.envs.describe(*self.worker_ranges[w])})"

    def _name_hung(self, w: int, when: str) -> NoReturn:
        """Raises WorkerError for a worker that does not reply.

        Args:
            when: for how long and when, with a space before it.
        """
        crew, launcher = self._crew, self._crew.state(-1)
        if not crew.pids[w]:
            stopped = "is stopped (SIGSTOP) and " if launcher == "stopped" else ""
            self._fail(
                f"the process that starts the workers (pid {crew.process.pid}) {stopped}has not replied{when}"
            )
        state = crew.state(w)
        words = crew.last_words(w) if state else crew.where_is_it(w)
        what = {
            "stopped": f"is stopped (SIGSTOP) and has not replied{when}",
            "ended": "has ended",
        }.get(state, f"has not replied{when}")
        if launcher == "stopped":
            what += "; the process that started the workers is stopped (SIGSTOP)"
        self._fail(f"{self._name(w)} {what}" + (f"; it is at\n{words}" if words else ""), worker=w)


def _own_module(factory: EnvFactory) -> str:
    """Returns the module of a factory of ours, which imports no user's code; "" for any other."""
    module = type(factory).__module__
    return module if module.startswith("metta_fast.") else ""


def _pickled(factory: EnvFactory) -> bytes:
    """Returns the factory for the workers. Raises UserError if it cannot be pickled."""
    try:
        return cloudpickle.dumps(factory)
    except Exception as error:
        raise UserError(
            f"vector.backend=workers sends the maker of {factory.spec.name} to other processes, but it cannot be "
            f"pickled: {type(error).__name__}: {error}; create such an object inside the function that makes an "
            "environment, not before it, or give vector.backend=threads"
        ) from error
