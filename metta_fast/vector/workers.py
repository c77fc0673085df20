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
import select
import time
import weakref
from typing import Any, NoReturn

import cloudpickle

from metta_fast.contracts import batch_state as states
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.slab import EnvRange, slab_size, slices, split
from metta_fast.envs.native._sync import NOTHING, Board, Memory, board_size
from metta_fast.machine.spin import spin_seconds
from metta_fast.vector.base import LOOK_S, BaseVector
from metta_fast.vector.crew import Crew, anonymous_file, ending
from metta_fast.vector.job import Job

START_S = 60.0
"""Seconds for a worker to import and make its environments, or worker_timeout_s if that is longer."""
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
        fd = anonymous_file(board + size)
        try:
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
                factory=cloudpickle.dumps(factory),
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
        finally:
            os.close(fd)
        self._waiting = [0.0] * num_workers
        """For each worker: seconds that recv has waited while it was busy and finished nothing."""
        self._progress = [0] * num_workers
        self._finalizer = weakref.finalize(self, Crew.dismiss, self._crew, 0.0)
        try:
            self._await_start()
        except BaseException:
            self._finalizer()
            raise

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

    def _fault(self) -> NoReturn:
        """Raises WorkerError for a worker's exception, or for a death that the launcher reported."""
        deadline = time.monotonic() + 1.0
        while True:
            for w in range(len(self.worker_ranges)):
                if self.board.raised(w):
                    env = self.board.fault_env(w)
                    which = f": environment {env} raised" if env >= 0 else " raised"
                    self._fail(
                        f"{self._name(w)}{which}\n{self._crew.last_words(w)}",
                        env=env if env >= 0 else None,
                        worker=w,
                    )
            death = self._crew.death()
            if death is not None:
                w, status = death
                if w < 0:
                    self._fail(
                        f"the process that started the workers {ending(status)}, so all workers have ended"
                    )
                words = self._crew.last_words(w)
                self._fail(f"{self._name(w)} {ending(status)}" + (f"\n{words}" if words else ""), worker=w)
            if time.monotonic() > deadline:
                self._fail("a worker failed without a traceback or an exit status")
            time.sleep(0.002)

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

    def _load_env_states(self, state: states.State) -> None:
        self._ask_all(
            "load",
            [
                [states.cut(state, s.start, s.stop) for s in self.slices if s.worker == w]
                for w in range(len(self.worker_ranges))
            ],
        )

    def _stop(self, broken: bool = False) -> None:
        if not broken and self._crew.is_mine():
            for w, link in enumerate(self._crew.links):
                try:
                    link.send(("close", None))
                except OSError:  # it died: the launcher ends the others
                    continue
                self.board.message(w)
        self._finalizer.detach()
        self._crew.dismiss(0.0 if broken else CLOSE_S)

    # ---- messages by socket ----

    def _await_start(self) -> None:
        """Waits until every worker has made its environments."""
        for w, (pid, _) in enumerate(self._replies("starting", max(START_S, self.worker_timeout_s))):
            self._crew.pids[w] = pid

    def _ask_all(self, command: str, arguments: list[Any]) -> list[Any]:
        """Sends a command to each worker and returns the replies, by worker."""
        for w, argument in enumerate(arguments):
            try:
                self._crew.links[w].send((command, argument))
            except OSError:
                self._fault()
            self.board.message(w)
        return [reply for _, reply in self._replies(f"answering ({command})", self.worker_timeout_s)]

    def _replies(self, doing: str, patience_s: float) -> list[Any]:
        """Returns one reply of each worker. Raises WorkerError if a worker fails or does not reply for patience_s."""
        missing = {link: w for w, link in enumerate(self._crew.links)}
        replies: list[Any] = [None] * len(missing)
        waited = 0.0
        while missing:
            if self.ready.wait(0.0) != NOTHING or self._crew.has_news():
                self._fault()
            poll = select.poll()
            for link in missing:
                poll.register(link.fileno(), select.POLLIN)
            start = time.monotonic()
            came = {fd for fd, _ in poll.poll(LOOK_S * 1000)}
            waited = 0.0 if came else waited + min(time.monotonic() - start, 2 * LOOK_S)
            for link, w in list(missing.items()):
                if link.fileno() in came:
                    try:
                        replies[w] = link.recv()
                    except EOFError:
                        self._fault()
                    del missing[link]
            if waited > patience_s:
                self._name_hung(min(missing.values()), f" for {patience_s} s while {doing}")
        return replies

    # ---- naming ----

    def _name(self, w: int) -> str:
        pid = self._crew.pids[w]
        return f"worker {w} (pid {pid}, {self.envs.describe(*self.worker_ranges[w])})"

    def _name_hung(self, w: int, when: str) -> NoReturn:
        stopped = self._crew.is_stopped(w)
        words = "" if stopped else self._crew.where_is_it(w)
        self._fail(
            f"{self._name(w)} {'is stopped (SIGSTOP) and ' if stopped else ''}has not replied{when}"
            + (f"; it is at\n{words}" if words else ""),
            worker=w,
        )
