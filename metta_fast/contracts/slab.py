"""Assigns environments to blocks and workers, and lays out the arrays of the slab.

    environments  0 ………………………………………………………………… num_envs
    blocks        |    0    |    1    |    2    |        split(num_envs, num_blocks)
    workers       |      0      |      1       |        split(num_envs, num_workers)
    slices        |    |    |   |     |         |        intersections of a block and a worker: one EnvBatch each

The slab is one stretch of memory with one row per agent. The arrays follow one another, each aligned to a cache line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from metta_fast.contracts.env import Array, EnvSpec, Rows

LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True)
class EnvRange:
    """The environments of one vector: global ids first … first+count−1 of a run's `total`."""

    count: int
    first: int
    total: int

    def describe(self, start: int, stop: int) -> str:
        """Names the vector's environments [start, stop) by their global ids: "environments 4…7"."""
        first, last = self.first + start, self.first + stop - 1
        return f"environment {first}" if first == last else f"environments {first}…{last}"


class Slice(NamedTuple):
    """Environments [start, stop) of one block, stepped by one worker."""

    block: int
    worker: int
    start: int
    stop: int


def split(total: int, parts: int) -> list[tuple[int, int]]:
    """Splits 0 … total−1 into `parts` contiguous ranges whose lengths differ by at most one."""
    return [(i * total // parts, (i + 1) * total // parts) for i in range(parts)]


def slices(num_envs: int, num_blocks: int, num_workers: int) -> list[Slice]:
    """Returns all non-empty intersections of a block's and a worker's range, in order of environments."""
    workers = split(num_envs, num_workers)
    return [
        Slice(b, w, max(lo, first), min(hi, last))
        for b, (lo, hi) in enumerate(split(num_envs, num_blocks))
        for w, (first, last) in enumerate(workers)
        if max(lo, first) < min(hi, last)
    ]


def _arrays(spec: EnvSpec, num_agents: int) -> list[tuple[str, tuple[int, ...], np.dtype]]:
    """Returns name, shape and dtype of every array of the slab."""
    n = num_agents
    flag, number = np.dtype(np.bool_), np.dtype(np.float32)
    return [
        *((f"obs/{name}", (n, *leaf.shape), np.dtype(leaf.dtype)) for name, leaf in spec.obs.items()),
        ("action", (n, spec.action.width), np.dtype(spec.action.dtype)),
        ("reward", (n,), number),
        ("terminal", (n,), flag),
        ("truncation", (n,), flag),
        ("mask", (n,), flag),
        ("reset", (n,), flag),
        ("stats", (n, len(spec.stats)), number),
        ("action_mask", (n, sum(spec.action.nvec) if spec.action_mask else 0), flag),
    ]


def _bytes(shape: Sequence[int], dtype: np.dtype) -> int:
    return -(-int(np.prod(shape, dtype=np.int64)) * dtype.itemsize // LINE) * LINE


def slab_size(spec: EnvSpec, num_agents: int) -> int:
    """Returns the size of the slab in bytes."""
    return sum(_bytes(shape, dtype) for _, shape, dtype in _arrays(spec, num_agents))


def slab_rows(spec: EnvSpec, num_agents: int, slab: Array) -> Rows:
    """Returns the rows as views into `slab`, uint8 [slab_size(spec, num_agents)]."""
    found: dict[str, Array] = {}
    at = 0
    for name, shape, dtype in _arrays(spec, num_agents):
        count = int(np.prod(shape, dtype=np.int64))
        found[name] = slab[at : at + count * dtype.itemsize].view(dtype).reshape(shape)
        at += _bytes(shape, dtype)
    return Rows({name: found.pop(f"obs/{name}") for name in spec.obs}, **found)


def new_rows(spec: EnvSpec, num_agents: int) -> Rows:
    """Returns rows in memory of their own, zeroed."""
    return slab_rows(spec, num_agents, np.zeros(slab_size(spec, num_agents), np.uint8))
