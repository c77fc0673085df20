"""Implements vector.backend=threads: a pool of C threads for native environments, Python threads for others.

    send ─► pool: chunks of the block's environments, taken by any thread ─► ready ─► recv

recv waits without the GIL. Python environments run faster only if their steps
release the GIL or wait for something; otherwise use workers.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import NoReturn, cast

from metta_fast.contracts.env import EnvError, EnvFactory, NativeBatch
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.contracts.slab import EnvRange, Slice, split
from metta_fast.contracts.vector import VectorError
from metta_fast.envs.native._pool import PATIENCE_S, Pool
from metta_fast.envs.native._sync import Ready
from metta_fast.machine.spin import spin_seconds
from metta_fast.vector.base import BaseVector
from metta_fast.vector.thread_pool import ThreadPool

CHUNKS_PER_THREAD = 4
"""Pieces of a block per thread: they balance the load where steps differ in length."""
BROKEN_S = 0.2
"""Seconds that closing after an error waits for Python threads that are inside a step."""


class NativeThreadsVector(BaseVector):
    """Steps native environments in a pool of C threads: one EnvBatch and one job per block."""

    def __init__(
        self, factory: EnvFactory, envs: EnvRange, num_blocks: int, worker_timeout_s: float, num_threads: int
    ) -> None:
        super().__init__(factory, envs, num_blocks, worker_timeout_s)
        self.num_threads = num_threads
        self._make_batches(factory, self.env_ranges)
        jobs = [batch.native_job() for batch in self.batches]
        if None in jobs:
            raise VectorError(f"{factory.spec.name}: spec.native is set, but a batch has no native_job")
        spin = spin_seconds(num_threads)
        self.ready = Ready(num_blocks, spin_s=spin)
        chunks = CHUNKS_PER_THREAD * num_threads
        self.pool = Pool(self.ready, jobs, num_threads, spin_s=spin, chunks=chunks, keep=self.batches)
        weakref.finalize(self, self.pool.close)

    def _reset(self, seed: int, stagger: bool) -> None:
        for i, batch in enumerate(self.batches):
            try:
                batch.reset(seed, stagger=stagger)
            except BaseException as error:
                if is_interrupt(error):
                    raise
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

    def _stop(self, broken: bool = False) -> None:
        if self.pool.close():
            self._close_batches()


class PythonThreadsVector(BaseVector):
    """Steps Python environments in threads. A block has one slice per thread, each with its own EnvBatch. Any thread
    takes any slice."""

    def __init__(
        self, factory: EnvFactory, envs: EnvRange, num_blocks: int, worker_timeout_s: float, num_threads: int
    ) -> None:
        super().__init__(factory, envs, num_blocks, worker_timeout_s)
        self.num_threads = num_threads
        self.ready = Ready(num_blocks)
        self.slices = [
            Slice(b, w, lo + first, lo + last)
            for b, (lo, hi) in enumerate(self.env_ranges)
            for w, (first, last) in enumerate(split(hi - lo, min(num_threads, hi - lo)))
        ]
        self._make_batches(factory, [(s.start, s.stop) for s in self.slices])
        self._of_block = [[i for i, s in enumerate(self.slices) if s.block == b] for b in range(num_blocks)]
        self._pool = ThreadPool(self.ready, num_blocks, num_threads)
        self._finalizer = weakref.finalize(self, self._pool.stop, PATIENCE_S)

    def _reset(self, seed: int, stagger: bool) -> None:
        for b, mine in enumerate(self._of_block):
            self._pool.start(b, [(i, partial(self.batches[i].reset, seed, stagger=stagger)) for i in mine])

    def _step(self, index: int) -> None:
        self._pool.start(index, [(i, self.batches[i].step) for i in self._of_block[index]])

    def _fault(self) -> NoReturn:
        assert self._pool.error is not None
        error, i = self._pool.error
        self._fail_from(error, self.envs.describe(*self.batch_ranges[i]))

    def _look(self) -> None:
        lost = self._pool.lost()
        if lost is not None:
            self._fail(
                f"{self.envs.describe(*self.batch_ranges[lost])} ended the thread that stepped it (pthread_exit)"
            )

    def _hung(self) -> NoReturn:
        busy = [self.envs.describe(*self.batch_ranges[i]) for i in self._pool.running()]
        self._fail(
            f"threads have been resetting or stepping {' and '.join(busy)} for over {self.worker_timeout_s} s "
            "(vector.worker_timeout_s): an environment hangs"
        )

    def _stop(self, broken: bool = False) -> None:
        self._finalizer.detach()
        if self._pool.stop(BROKEN_S if broken else PATIENCE_S):
            self._close_batches()
