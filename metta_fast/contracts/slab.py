"""Who owns what: ranges of environments, and where each array of the slab lies.

    environments  0 ………………………………………………………………… num_envs
    blocks        |    0    |    1    |    2    |        split(num_envs, num_blocks)
    workers       |      0      |      1       |        split(num_envs, num_workers)
    slices        |    |    |   |     |         |        where the two meet: one EnvBatch each

The slab is one row per agent: arrays of the whole run one after another, each on a cache line of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metta_fast.contracts.env import Array, EnvSpec, Rows

LINE = 64


class Slice(NamedTuple):
    """Environments [start, stop) of one block, stepped by one worker."""

    block: int
    worker: int
    start: int
    stop: int


def split(total: int, parts: int) -> list[tuple[int, int]]:
    """`parts` contiguous ranges over 0 … total−1 whose lengths differ by one at most."""
    return [(i * total // parts, (i + 1) * total // parts) for i in range(parts)]


def slices(num_envs: int, num_blocks: int, num_workers: int) -> list[Slice]:
    """All non-empty meetings of a block's and a worker's range, in order of environments."""
    workers = split(num_envs, num_workers)
    return [
        Slice(b, w, max(lo, first), min(hi, last))
        for b, (lo, hi) in enumerate(split(num_envs, num_blocks))
        for w, (first, last) in enumerate(workers)
        if max(lo, first) < min(hi, last)
    ]


def _arrays(spec: EnvSpec) -> list[tuple[str, tuple[int, ...], np.dtype]]:
    """Name, shape and dtype of every array of the slab."""
    n = spec.num_agents
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
    ]


def _bytes(shape: Sequence[int], dtype: np.dtype) -> int:
    return -(-int(np.prod(shape, dtype=np.int64)) * dtype.itemsize // LINE) * LINE


def slab_size(spec: EnvSpec) -> int:
    """Bytes of the slab."""
    return sum(_bytes(shape, dtype) for _, shape, dtype in _arrays(spec))


def slab_rows(spec: EnvSpec, slab: Array) -> Rows:
    """The rows in a slab, uint8 [slab_size(spec)]."""
    found: dict[str, Array] = {}
    at = 0
    for name, shape, dtype in _arrays(spec):
        count = int(np.prod(shape, dtype=np.int64))
        found[name] = slab[at : at + count * dtype.itemsize].view(dtype).reshape(shape)
        at += _bytes(shape, dtype)
    return Rows({name: found.pop(f"obs/{name}") for name in spec.obs}, **found)
