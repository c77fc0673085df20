"""Sizes of the built-in network over grids of symbols, and the memory it takes. No torch here.

    policy.symbol_encoder=embedding     symbols (contracts/env.py: Leaf.bounds) ─► embeddings ─► one dense layer
    policy.symbol_encoder=flat          plain numbers, beside the other flat leaves

Each channel has a vocabulary of its own, from its lowest value on. The module: metta_fast/policy/encoding/symbols.py.
"""

from __future__ import annotations

from math import prod

from metta_fast.contracts.env import MOST_SYMBOLS, EnvSpec, Leaf

EMBEDDED = 16
"""Numbers that stand for a cell: the sum of its channels' embeddings."""
KEPT = 8
"""Bytes that each unit of a layer takes: its output, before and after the activation, in float32."""


def vocabularies(leaf: Leaf) -> list[tuple[int, int]]:
    """Returns for each channel (lowest value, number of symbols), at most MOST_SYMBOLS.

    A channel without a finite lowest value, such as int32 without bounds, begins at 0.
    """
    found = []
    for low, high in leaf.bounds:
        few = high - low < MOST_SYMBOLS or low >= -MOST_SYMBOLS
        first = low if few else max(low, min(0, high - MOST_SYMBOLS + 1))
        found.append((first, min(high - first + 1, MOST_SYMBOLS)))
    return found


def cells(leaf: Leaf) -> int:
    """Returns the number of cells of a grid of symbols."""
    return prod(leaf.shape) // len(leaf.bounds)


def symbol_memory(spec: EnvSpec, width: int) -> tuple[int, int]:
    """Returns (bytes of activations for each row, number of weights) of the network over all leaves of `spec`."""
    units = weights = 0
    for leaf in spec.obs.values():
        units += EMBEDDED * (prod(leaf.shape) + cells(leaf))
        weights += EMBEDDED * (sum(size for _, size in vocabularies(leaf)) + cells(leaf) * width)
    return KEPT * units, weights + width
