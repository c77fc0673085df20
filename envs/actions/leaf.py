"""Converts a policy's action rows to actions of a Gymnasium space without parts. Each satisfies
`space.contains`.

action space                          row                   action
Discrete(n, start=k)                  one head of n         k … k+n−1
MultiDiscrete                         one head per entry    each with its start
MultiBinary                           one head of 2 each    0 or 1
Box, floats                           float32 [size]        clipped to the bounds, then rounded to the dtype
Box, whole numbers, two bounds        float32 [size]        the interval [low, high] in high−low+1 equal parts, so that
                                                            all numbers are equally likely under uniform rows
Box, whole numbers, a bound missing   float32 [size]        the nearest whole number within the bounds
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from metta_fast.contracts.env import ActionSpec, Array
from metta_fast.contracts.errors import UserError

EXACT = 2.0**53
"""Largest whole number up to which float64 holds every whole number."""
LARGEST = float(np.finfo(np.float32).max)
"""A bound from here on is none: the policy computes in float32."""


def leaf_spec(space: spaces.Space[Any]) -> ActionSpec:
    """Returns the spec of one agent's action space. Raises UserError for an unsupported space."""
    if 0 in tuple(space.shape or ()):
        raise UserError(f"action space {space} has shape {space.shape}: there is nothing to choose")
    if isinstance(space, spaces.Discrete):
        return ActionSpec("discrete", nvec=(int(space.n),), start=(int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        return ActionSpec("discrete", nvec=whole_numbers(space.nvec), start=whole_numbers(space.start))
    if isinstance(space, spaces.MultiBinary):
        heads = int(np.prod(space.shape))
        return ActionSpec("discrete", nvec=(2,) * heads, start=(0,) * heads)
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind in "biuf":
        low, high = _bounds(space)
        high = np.where(
            low == high, np.nextafter(high, np.inf), high
        )  # a constant: the policy's bounds must differ
        return ActionSpec("box", low=tuple(low.tolist()), high=tuple(high.tolist()))
    raise UserError(
        f"action space {space}: expected Discrete, MultiDiscrete, MultiBinary, Box, or a Dict or Tuple of them "
        "(wrap the environment)"
    )


class LeafDecoder:
    """Decodes rows of one agent each. The actions share no memory with the rows."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.shape = tuple(space.shape or ())
        self.dtype = np.dtype(space.dtype)
        self._start: Any = None
        if isinstance(space, spaces.Discrete):
            self._start = np.array([space.start], self.dtype)
        elif isinstance(space, spaces.MultiDiscrete):
            self._start = space.start.reshape(-1).astype(self.dtype)
        elif isinstance(space, spaces.Box):
            self._box = space
            self._low, self._high = space.low.reshape(-1), space.high.reshape(-1)
            if self.dtype.kind == "f":
                limits = np.finfo(self.dtype)
                self._low = np.maximum(self._low, limits.min)
                self._high = np.minimum(self._high, limits.max)
            else:
                self._whole()

    def _whole(self) -> None:
        """Prepares whole numbers."""
        low, high = _bounds(self._box)
        self._binned = np.isfinite(low) & np.isfinite(high)
        self._least, self._most = self._low.astype(np.float64), self._high.astype(np.float64)
        self._span = np.where(self._binned, self._most - self._least, 0.0)
        self._wide = bool((np.maximum(np.abs(self._least), np.abs(self._most)) >= EXACT).any())

    def decode(self, rows: Array) -> Array:
        """Converts rows [n, width] to actions [n, *space.shape]."""
        if not isinstance(self.space, spaces.Box):
            values = rows.astype(self.dtype)
            if self._start is not None:
                values += self._start
        elif self.dtype.kind == "f":
            values = np.clip(rows, self._low, self._high).astype(self.dtype, copy=False)
        else:
            values = self._to_whole(rows)
        return values.reshape(len(rows), *self.shape)

    def each(self, rows: Array) -> list[Any]:
        """Converts rows [n, width] to n actions. Discrete ones are scalars of the space's dtype, which the space checks
        faster than an int."""
        actions = self.decode(rows)
        if isinstance(self.space, spaces.Discrete):
            return list(actions)
        return [actions[i, ...] for i in range(len(actions))]

    def _to_whole(self, rows: Array) -> Array:
        """Converts rows [n, size] to whole numbers in the space's dtype."""
        exact = rows.astype(np.float64)
        share = (exact - self._least) / np.where(self._span > 0, self._span, 1.0)
        bins = np.clip(np.floor(share * (self._span + 1)), 0, self._span)
        nearest = np.clip(np.rint(exact), self._least, self._most)
        if not self._wide:
            return np.where(self._binned, self._least + bins, nearest).astype(self.dtype)
        low, high = (
            self._low.astype(object),
            self._high.astype(object),
        )  # Python's whole numbers: float64 would round
        whole = np.frompyfunc(int, 1, 1)
        values = np.where(self._binned, low + whole(bins), whole(nearest))
        return np.minimum(np.maximum(values, low), high).astype(self.dtype)


def _bounds(space: spaces.Box[Any]) -> tuple[Array, Array]:
    """Returns low and high [size] float64; infinite where there is no bound, or one that is as good as none."""
    low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    limit = min(LARGEST, float(np.finfo(np.dtype(space.dtype)).max)) if space.dtype.kind == "f" else np.inf
    free_low = ~space.bounded_below.reshape(-1) | (low <= -limit)
    free_high = ~space.bounded_above.reshape(-1) | (high >= limit)
    return np.where(free_low, -np.inf, low), np.where(free_high, np.inf, high)


def whole_numbers(array: Array) -> tuple[int, ...]:
    """Returns the entries of an array of any shape as Python's numbers."""
    return tuple(int(x) for x in np.asarray(array).reshape(-1))
