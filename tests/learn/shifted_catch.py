"""Catch, of which the picture is moved by a few pixels: the same game, as a camera that stands elsewhere sees it.

metta-fast train env=tests.learn.shifted_catch:make env.params.pixels=4 trainer.total_timesteps=200000
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metta_fast.envs.sanity.catch import Catch


class ShiftedCatch(Catch):
    """Moves the picture of each episode by up to `pixels` along both sides. What comes into view is black."""

    def __init__(self, pixels: int) -> None:
        self.pixels, self.move = pixels, (0, 0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        self.move = 0, 0
        image, info = super().reset(seed=seed)
        y, x = self.np_random.integers(-self.pixels, self.pixels + 1, 2)
        self.move = int(y), int(x)
        return self._moved(image), info

    def _image(self) -> NDArray[np.uint8]:
        return self._moved(super()._image())

    def _moved(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        high, wide, _ = image.shape
        y, x = self.move
        found = np.zeros_like(image)
        found[max(0, y) : high + y, max(0, x) : wide + x] = image[
            max(0, -y) : high - y, max(0, -x) : wide - x
        ]
        return found


def make(config: Any) -> Callable[[int], ShiftedCatch]:
    """Returns a maker of environment i. env.params.pixels: how far pictures are moved, by default 4."""
    pixels = int(config.params.get("pixels", 4))
    return lambda index: ShiftedCatch(pixels)
