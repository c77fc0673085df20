"""Implements a target to hit with two continuous actions whose bounds differ. An episode is one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

LOW, HIGH = np.array([0.0, -3.0], np.float32), np.array([1.0, 10.0], np.float32)


class Target(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Shows x in [−1, 1]². The reward is −mean((u − x)²), u the action scaled from its bounds to [−1, 1]; at best 0."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(LOW, HIGH, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.x.copy(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        u = 2 * (action - LOW) / (HIGH - LOW) - 1
        return self.x.copy(), -float(np.square(u - self.x).mean()), True, False, {}


def make(config: Any) -> Callable[[int], Target]:
    """Returns a maker of environment i."""
    return lambda index: Target()
