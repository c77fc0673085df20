"""Tests the area resize against the plain mean over each pixel's rectangle, and OpenCV's where it is installed."""

from __future__ import annotations

import numpy as np
import pytest

from metta_fast.contracts.env import Array
from metta_fast.envs.adapters.area_resize import AreaResize

SIZES = [
    ((210, 160), (84, 84)),
    ((250, 160), (84, 84)),
    ((210, 160), (64, 50)),
    ((30, 30), (30, 30)),
    ((7, 9), (3, 1)),
]


def plain(screen: Array, to: tuple[int, int]) -> Array:
    """Each side cut into pieces of one size, in float64."""
    (high, wide), (rows, columns) = screen.shape, to
    tall = np.repeat(screen.astype(np.float64), rows, 0).reshape(rows, high, wide).mean(1)
    return np.repeat(tall, columns, 1).reshape(rows, columns, wide).mean(2)


def resized(screen: Array, to: tuple[int, int]) -> Array:
    out = np.empty(to, np.uint8)
    AreaResize(screen.shape, to)(screen, out)  # type: ignore[arg-type]
    return out


@pytest.mark.parametrize(("size", "to"), SIZES)
def test_each_pixel_is_the_mean_of_its_rectangle(size: tuple[int, int], to: tuple[int, int]) -> None:
    screen = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)
    assert np.abs(resized(screen, to) - plain(screen, to)).max() <= 0.5 + 1e-3


@pytest.mark.parametrize(("size", "to"), SIZES)
def test_within_one_level_of_opencv(size: tuple[int, int], to: tuple[int, int]) -> None:
    cv2 = pytest.importorskip("cv2")
    screen = np.random.default_rng(1).integers(0, 256, size).astype(np.uint8)
    apart = np.abs(
        resized(screen, to).astype(int) - cv2.resize(screen, to[::-1], interpolation=cv2.INTER_AREA)
    )
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.01
