"""Implements an action of three parts, choices and numbers, which repeat what is seen. An episode is one step."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np

CHOICES = 4


class Parts(gymnasium.Env[dict[str, Any], dict[str, Any]]):
    """Shows one of four symbols (as 5 … 8), a bit and a point in [−1, 1]². At best the reward is 2.

    Reward: 1 for the right symbol, ½ for the bit, and ½ − mean((move − point)²).
    """

    observation_space = gymnasium.spaces.Dict(
        symbol=gymnasium.spaces.Discrete(CHOICES, start=5),
        bit=gymnasium.spaces.MultiBinary(1),
        point=gymnasium.spaces.Box(-1, 1, (2,), np.float32),
    )
    action_space = gymnasium.spaces.Dict(
        move=gymnasium.spaces.Box(-2, 2, (2,), np.float32),
        pick=gymnasium.spaces.Tuple(
            [gymnasium.spaces.Discrete(CHOICES, start=5), gymnasium.spaces.MultiBinary(1)]
        ),
    )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.shown: dict[str, Any] = {
            "symbol": np.int64(5 + self.np_random.integers(CHOICES)),
            "bit": self.np_random.integers(0, 2, 1, dtype=np.int8),
            "point": self.np_random.uniform(-1, 1, 2).astype(np.float32),
        }
        return deepcopy(self.shown), {}

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        symbol, (bit,) = action["pick"]
        reward = float(symbol == self.shown["symbol"]) + 0.5 * float(bit == self.shown["bit"].item())
        reward += 0.5 - float(np.square(action["move"] - self.shown["point"]).mean())
        return deepcopy(self.shown), reward, True, False, {}


def make(config: Any) -> Callable[[int], Parts]:
    """Returns a maker of environment i."""
    return lambda index: Parts()
