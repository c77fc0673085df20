"""Implements vector.backend=threads: a pool of C threads for native environments, Python threads for others.

    send ─► pool: chunks of the block's environments, taken by any thread ─► ready ─► recv

recv waits without the GIL. Python environments run faster only if their steps
release the GIL or wait for something; otherwise use workers.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import NoReturn, cast

from metta_fast.contracts import batch_state as states
from metta_fast.contracts.env import EnvBatch, EnvError, EnvFactory, NativeBatch
from metta_fast.contracts.slab import EnvRange, Slice, split
from metta_fast.contracts.vector import VectorError
from metta_fast.envs.native._pool import Pool
from metta_fast.envs.native._sync import Ready
from metta_fast.machine.spin import spin_seconds
from metta_fast.vector.base import BaseVector

CHUNKS_PER_THREAD = 4
"""Pieces of a block per thread: they balance the load where steps differ in length."""
PATIENCE_S = 2.0
"""Seconds that close waits for a thread that is inside a step."""


class NativeThreadsVector(BaseVector):
    """Steps native environments in a pool of C threads: one EnvBatch and one job per block."""

    def __init__(
        self, factory: EnvFactory, envs: EnvRange, num_blocks: int, worker_timeout_s: float, num_threads: int
    ) -> None:
        super().__init__(factory, envs, num_blocks, worker_timeout_s)
        jobs = []
        for block, (lo, hi) in zip(self.blocks, self.env_ranges):
            batch = self._make_batch(factory, lo, hi)
            batch.bind(block.rows)
            job = batch.native_job()
            if job is None:
                raise VectorError(f"{factory.spec.name}: spec.native is set, but a batch has no native_job")
            self.batches.append(batch)
            jobs.append(job)
        spin = spin_seconds(num_threads)
        self.ready = Ready(num_blocks, spin_s=spin)
        self.pool = Pool(self.ready, jobs, num_threads, spin_s=spin, chunks=CHUNKS_PER_THREAD * num_threads)

    def _reset(self, seed: int, stagger: bool) -> None:
        for i, batch in enumerate(self.batches):
            try:
                batch.reset(seed, stagger=stagger)
            except Exception as error:
                self._fail_from(error, self.envs.describe(*self.env_ranges[i]))
            self.ready.depart(i)
            self.ready.push(i)

    def _step(self, index: int) -> None:
        self.pool.step(index)

    def _fault(self) -> NoReturn:
        for i, batch in enumerate(self.batches):
            try:
                cast("NativeBatch", batch).raise_fault()
            except EnvError as error:
                self._fail_from(error, self.envs.describe(*self.env_ranges[i]))
        self._fail(f"{self.spec.name}: a native job reported a fault, but no batch has one")

    def _hung(self) -> NoReturn:
        busy = [self.envs.describe(*r) for i, r in enumerate(self.env_ranges) if self.pool.is_busy(i)]
        self._fail(
            f"threads have been stepping {' and '.join(busy)} for over {self.worker_timeout_s} s "
            "(vector.worker_timeout_s): an environment hangs"
        )

    def _load_env_states(self, state: states.State) -> None:
        for batch, (lo, hi) in zip(self.batches, self.env_ranges):
            batch.load_state_dict(states.cut(state, lo, hi))

    def _stop(self, broken: bool = False) -> None:
        if self.pool.close(PATIENCE_S):
            for batch in self.batches:
                batch.close()
        else:
            _abandoned.append(self.batches)


_abandoned: list[list[EnvBatch]] = []
"""Batches that a hanging thread may still write to; they are never freed."""


class PythonThreadsVector(BaseVector):
    """Steps Python environments in threads. A block has one slice per thread, each with its own EnvBatch. Any thread
    takes any slice."""

    def __init__(
        self, factory: EnvFactory, envs: EnvRange, num_blocks: int, worker_timeout_s: float, num_threads: int
    ) -> None:
        super().__init__(factory, envs, num_blocks, worker_timeout_s)
        self.ready = Ready(num_blocks)
        a = factory.spec.agents_per_env
        self.slices = [
            Slice(b, w, lo + first, lo + last)
            for b, (lo, hi) in enumerate(self.env_ranges)
            for w, (first, last) in enumerate(split(hi - lo, min(num_threads, hi - lo)))
        ]
        for s in self.slices:
            batch = self._make_batch(factory, s.start, s.stop)
            batch.bind(self.rows.slice(s.start * a, s.stop * a))
            self.batches.append(batch)
        self._of_block = [[i for i, s in enumerate(self.slices) if s.block == b] for b in range(num_blocks)]
        self._remaining = [0] * num_blocks
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._error: tuple[Exception, int] | None = None
        self._tasks: queue.SimpleQueue[tuple[int, Callable[[], None]] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"mf-env-{t}", daemon=True) for t in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self) -> None:
        """Runs a thread: takes slices and resets or steps them. A block's last slice makes the block ready."""
        while (task := self._tasks.get()) is not None:
            i, work = task
            block = self.slices[i].block
            self._running.add(i)
            try:
                work()
            except Exception as error:
                self._error = (error, i)
                self.ready.fault()
                return
            self._running.discard(i)
            with self._lock:
                self._remaining[block] -= 1
                done = self._remaining[block] == 0
            if done:
                self.ready.push(block)

    def _start(self, index: int, works: list[Callable[[], None]]) -> None:
        self._remaining[index] = len(works)
        self.ready.depart(index)
        for task in zip(self._of_block[index], works):
            self._tasks.put(task)

    def _reset(self, seed: int, stagger: bool) -> None:
        for b, mine in enumerate(self._of_block):
            self._start(b, [partial(self.batches[i].reset, seed, stagger=stagger) for i in mine])

    def _step(self, index: int) -> None:
        self._start(index, [self.batches[i].step for i in self._of_block[index]])

    def _fault(self) -> NoReturn:
        assert self._error is not None
        error, i = self._error
        self._fail_from(error, self.envs.describe(*self.slices[i][2:]))

    def _hung(self) -> NoReturn:
        busy = [self.envs.describe(*self.slices[i][2:]) for i in sorted(self._running)]
        self._fail(
            f"threads have been resetting or stepping {' and '.join(busy)} for over {self.worker_timeout_s} s "
            "(vector.worker_timeout_s): an environment hangs"
        )

    def _load_env_states(self, state: states.State) -> None:
        for batch, s in zip(self.batches, self.slices):
            batch.load_state_dict(states.cut(state, s.start, s.stop))

    def _stop(self, broken: bool = False) -> None:
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(0.2 if broken else PATIENCE_S)
        if not any(thread.is_alive() for thread in self._threads):
            for batch in self.batches:
                batch.close()
