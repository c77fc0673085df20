"""Implements a knight's tour of a board of 10 × 10: an action names the cell to go to, one of 100.

`action_masks()` says which are legal: cells at a knight's distance that were not visited yet, none to eight of the
hundred. Each legal move pays 1. An episode ends when no move is left, or with an illegal one, which pays 0. The best
return is 99. A policy that does not see the mask has first to find by trial how a knight moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

SIDE = 10
CELLS = SIDE * SIDE
MOVES = ((1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2))


def _reached() -> NDArray[np.bool_]:
    """Returns [from, to] bool: the knight's moves."""
    found = np.zeros((CELLS, CELLS), np.bool_)
    for cell in range(CELLS):
        row, column = divmod(cell, SIDE)
        for down, right in MOVES:
            if 0 <= row + down < SIDE and 0 <= column + right < SIDE:
                found[cell, (row + down) * SIDE + column + right] = True
    return found


REACHED = _reached()


class Tour(gymnasium.Env[NDArray[np.int8], np.int64]):
    """Observation [200] int8: the cells that were visited, then the knight's cell, one-hot. It starts anywhere."""

    observation_space = gymnasium.spaces.MultiBinary(2 * CELLS)
    action_space = gymnasium.spaces.Discrete(CELLS)

    def __init__(self) -> None:
        self.free = np.ones(CELLS, np.bool_)
        self.cell = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int8], dict[str, Any]]:
        super().reset(seed=seed)
        self.free[:] = True
        self._go(int(self.np_random.integers(CELLS)))
        return self._seen(), {}

    def _go(self, cell: int) -> None:
        self.cell = cell
        self.free[cell] = False
        self.legal = REACHED[cell] & self.free

    def _seen(self) -> NDArray[np.int8]:
        seen = np.zeros(2 * CELLS, np.int8)
        seen[:CELLS] = ~self.free
        seen[CELLS + self.cell] = 1
        return seen

    def action_masks(self) -> NDArray[np.bool_]:
        """Returns [CELLS] bool: True for legal moves."""
        return self.legal

    def step(self, action: np.int64) -> tuple[NDArray[np.int8], float, bool, bool, dict[str, Any]]:
        if not self.legal[action]:
            return self._seen(), 0.0, True, False, {}
        self._go(int(action))
        return self._seen(), 1.0, not self.legal.any(), False, {}


def make(config: Any) -> Callable[[int], Tour]:
    """Returns a maker of environment i."""
    return lambda index: Tour()
