"""Implements copying of symbols: three branches of 2, 7 and 3 choices repeat what is seen. An episode is one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

SIZES = (2, 7, 3)


class Copy(gymnasium.Env[NDArray[np.int64], NDArray[np.int64]]):
    """Shows three symbols. The reward is the share of branches that repeat theirs; at best 1."""

    observation_space = gymnasium.spaces.MultiDiscrete(list(SIZES))
    action_space = gymnasium.spaces.MultiDiscrete(list(SIZES))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int64], dict[str, Any]]:
        super().reset(seed=seed)
        self.seen = self.np_random.integers(SIZES)
        return self.seen.copy(), {}

    def step(self, action: NDArray[np.int64]) -> tuple[NDArray[np.int64], float, bool, bool, dict[str, Any]]:
        return self.seen.copy(), float((np.asarray(action) == self.seen).mean()), True, False, {}


def make(config: Any) -> Callable[[int], Copy]:
    """Returns a maker of environment i."""
    return lambda index: Copy()
