"""Implements a cue to remember: one of four is shown, and must be answered eight steps later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

CUES, DELAY = 4, 8


class Cue(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Shows the cue (one-hot) in the first step, then nothing, then a flag that asks for the answer.

    The reward is 1 for the right answer; all other actions have no effect. At best 1, by guessing 1/4.
    """

    observation_space = gymnasium.spaces.Box(0, 1, (CUES + 1,), np.float32)
    action_space = gymnasium.spaces.Discrete(CUES)

    def _show(self) -> NDArray[np.float32]:
        seen = np.zeros(CUES + 1, np.float32)
        if self.time == 0:
            seen[self.cue] = 1
        seen[CUES] = self.time == DELAY
        return seen

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.cue, self.time = int(self.np_random.integers(CUES)), 0
        return self._show(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        over = self.time == DELAY
        reward = float(over and action == self.cue)
        self.time += 1
        return self._show(), reward, over, False, {}


def make(config: Any) -> Callable[[int], Cue]:
    """Returns a maker of environment i."""
    return lambda index: Cue()
