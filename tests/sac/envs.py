"""Small environments for SAC's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np


class Unbounded(gymnasium.Env[np.ndarray, np.ndarray]):
    """Pays for a number near 3, of any size."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(1, np.float32), -abs(float(action[0]) - 3), True, False, {}


def unbounded(config: Any) -> Callable[[int], Unbounded]:
    return lambda index: Unbounded()


class Huge(Unbounded):
    """Pays so much that the squared loss is infinite in float32."""

    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        return np.zeros(1, np.float32), 1e30, True, False, {}


def huge(config: Any) -> Callable[[int], Huge]:
    return lambda index: Huge()
