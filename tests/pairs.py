"""Chooses few of all combinations of some settings so that every pair of two settings' values is met.

covering({"a": [1, 2], "b": [3, 4], "c": [5, 6]}, lambda c: True)      # 4 of 8
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Combination = dict[str, Any]
Pair = frozenset[tuple[str, Any]]


def every(factors: Mapping[str, Sequence[Any]]) -> list[Combination]:
    """Returns all combinations."""
    return [dict(zip(factors, values)) for values in product(*factors.values())]


def pairs_of(combination: Combination) -> set[Pair]:
    return {frozenset(pair) for pair in combinations(combination.items(), 2)}


def covering(
    factors: Mapping[str, Sequence[Any]],
    allowed: Callable[[Combination], bool],
    cost: Callable[[Combination], float] = lambda _: 1.0,
) -> list[Combination]:
    """Returns allowed combinations that meet each pair which any allowed one has; greedily, the cheap ones first."""
    candidates = [combination for combination in every(factors) if allowed(combination)]
    left: set[Pair] = set().union(*(pairs_of(c) for c in candidates))
    chosen = []
    while left:
        best = max(candidates, key=lambda c: len(pairs_of(c) & left) / cost(c))
        chosen.append(best)
        left -= pairs_of(best)
    return chosen


def name(combination: Combination) -> str:
    """Returns the combination as a test's name."""
    return ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in combination.items())
