"""Estimates what robots take of a GPU's memory, before anything is on a GPU.

    once, each = bytes_of(how)          # in all: once + num_envs · each

MuJoCo Warp's host code runs on its CPU device for a few worlds without a kernel; what it allocates is counted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from metta_fast.envs.robot.warp.compile.modules import needed
from metta_fast.envs.robot.warp.draw.context import tree_bytes
from metta_fast.envs.robot.warp.simulation import How, Simulation

FEW, MORE = 8, 16
"""Numbers of worlds that are tried; memory is linear in them."""
CODE = 64 << 20
"""Kernels' code and the graphs of a step: 30 to 50 MiB were seen."""


@functools.cache
def bytes_of(how: How) -> tuple[int, int]:
    """Returns (bytes for any number of worlds, bytes for each world).

    Args:
        how: with njmax and nconmax.
    """
    import warp

    warp.config.log_level = warp.LOG_ERROR
    warp.init()
    few, more = _most_bytes(how, FEW), _most_bytes(how, MORE)
    each = -(-(more - few) // (MORE - FEW))
    return CODE + max(0, few - FEW * each), each


def _most_bytes(how: How, num_envs: int) -> int:
    """Returns the most bytes that are allocated at a time while worlds are made, stepped, derived from and drawn."""
    import warp

    place = warp.get_device("cpu")
    with _counted(place) as count:
        simulation = Simulation(how, num_envs, place)
        needed(simulation, num_envs)
    trees = 0 if how.drawn is None else num_envs * tree_bytes(simulation.mjm)
    return count.most + trees


class _Counting:
    """Counts what another allocator gives."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.now = self.most = 0
        self.deallocate_requires_context_guard = real.deallocate_requires_context_guard
        self.memory_kind = real.memory_kind

    def allocate(self, size_in_bytes: int) -> int:
        self.now += size_in_bytes
        self.most = max(self.most, self.now)
        return int(self._real.allocate(size_in_bytes))

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        self.now -= size_in_bytes
        self._real.deallocate(ptr, size_in_bytes)


@contextmanager
def _counted(place: Any) -> Iterator[_Counting]:
    """Counts allocations on Warp's CPU device."""
    real = place.default_allocator
    place.default_allocator = found = _Counting(real)
    try:
        yield found
    finally:
        place.default_allocator = real
