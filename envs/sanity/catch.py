"""Implements Catch on an image: a ball falls, a paddle of three actions has to be below it at the end.

    metta-fast train env=metta_fast.envs.sanity.catch:make trainer.total_timesteps=200000

The image is 84 × 84 × 1 uint8, of 12 × 12 cells of 7 pixels. An episode has 11 steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

CELLS, PIXELS = 12, 7
"""Cells of a side, and pixels of a cell's side."""


class Catch(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """Actions: left, stay, right. The reward is 0, and at the end 1 for a ball that was caught, −1 for one missed."""

    observation_space = gymnasium.spaces.Box(0, 255, (CELLS * PIXELS, CELLS * PIXELS, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.column = 0, int(self.np_random.integers(CELLS))
        self.paddle = CELLS // 2
        return self._image(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        self.paddle = min(CELLS - 1, max(0, self.paddle + int(action) - 1))
        self.row += 1
        done = self.row == CELLS - 1
        reward = 0.0 if not done else 1.0 if self.paddle == self.column else -1.0
        return self._image(), reward, done, False, {}

    def _image(self) -> NDArray[np.uint8]:
        image = np.zeros(self.observation_space.shape, np.uint8)  # type: ignore[arg-type]
        for row, column in ((self.row, self.column), (CELLS - 1, self.paddle)):
            image[row * PIXELS : (row + 1) * PIXELS, column * PIXELS : (column + 1) * PIXELS] = 255
        return image


def make(config: Any) -> Callable[[int], Catch]:
    """Returns a maker of environment i."""
    return lambda index: Catch()
