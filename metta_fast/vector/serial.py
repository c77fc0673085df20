"""Implements vector.backend=serial: the caller steps each block, in recv, in the order of the sends.

It is the slowest backend and the one for debugging: an environment's exception keeps its own traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.contracts.slab import EnvRange
from metta_fast.envs.native._sync import Ready
from metta_fast.vector.base import BaseVector


class SerialVector(BaseVector):
    """Steps one EnvBatch per block, in the caller."""

    def __init__(self, factory: EnvFactory, envs: EnvRange, num_blocks: int, worker_timeout_s: float) -> None:
        super().__init__(factory, envs, num_blocks, worker_timeout_s)
        self.ready = Ready(num_blocks)
        self._work: list[Callable[[], None]] = [_nothing] * num_blocks
        """The work to do before a block in flight is returned."""
        self._make_batches(factory, self.env_ranges)

    def _reset(self, seed: int, stagger: bool) -> None:
        for i, batch in enumerate(self.batches):
            self._work[i] = partial(batch.reset, seed, stagger=stagger)
            self.ready.depart(i)
            self.ready.push(i)

    def _step(self, index: int) -> None:
        self._work[index] = self.batches[index].step
        self.ready.depart(index)
        self.ready.push(index)

    def _arrived(self, index: int) -> None:
        try:
            self._work[index]()
        except BaseException as error:
            if is_interrupt(error):
                raise
            self._fail_from(error, self.envs.describe(*self.env_ranges[index]))

    def _stop(self, broken: bool = False) -> None:
        self._close_batches()


def _nothing() -> None:
    pass
