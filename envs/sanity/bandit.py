"""Implements a bandit of ten arms: arm k pays k / 9, give or take 0.1. An episode is one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

ARMS = 10
SPREAD = 0.1


class Bandit(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Shows nothing ([0.0]). The best mean reward is 1."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(ARMS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        reward = float(action) / (ARMS - 1) + self.np_random.uniform(-SPREAD, SPREAD)
        return np.zeros(1, np.float32), reward, True, False, {}


def make(config: Any) -> Callable[[int], Bandit]:
    """Returns a maker of environment i."""
    return lambda index: Bandit()
