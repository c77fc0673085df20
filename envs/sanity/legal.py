"""Implements a choice among twenty of which two are legal in each step, as the environment's action mask says.

The observation is +1 or -1: the larger legal choice pays 1 at +1, the smaller at -1. It does not show which are legal,
so only the mask can tell. An illegal action raises ValueError. An episode is ten steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

CHOICES = 20
LEGAL = 2
STEPS = 10


class Legal(gymnasium.Env[NDArray[np.float32], np.int64]):
    """The best return is STEPS; choosing among the legal ones at random gives half of it."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(CHOICES)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), {}

    def _next(self) -> NDArray[np.float32]:
        self.sign = 1 if self.np_random.random() < 0.5 else -1
        self.legal = self.np_random.choice(CHOICES, LEGAL, replace=False)
        return np.array([self.sign], np.float32)

    def action_masks(self) -> NDArray[np.bool_]:
        """Returns [CHOICES] bool: True for legal actions."""
        mask = np.zeros(CHOICES, np.bool_)
        mask[self.legal] = True
        return mask

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        if action not in self.legal:
            raise ValueError(f"action {action} is illegal: legal are {sorted(self.legal.tolist())}")
        best = self.legal.max() if self.sign > 0 else self.legal.min()
        reward = float(action == best)
        self.steps += 1
        return self._next(), reward, self.steps == STEPS, False, {}


def make(config: Any) -> Callable[[int], Legal]:
    """Returns a maker of environment i."""
    return lambda index: Legal()
