"""Shrinks grey images by the mean over the area of each pixel, as OpenCV's INTER_AREA does, with NumPy alone.

    resize = AreaResize((210, 160), (84, 84))
    resize(screen, out)                            # screen [210, 160] uint8 → out [84, 84] uint8

A pixel of the result is the mean of the rectangle that it covers; pixels at the rectangle's edge count by the part of
them that is inside. Rows are summed first, then columns: a few whole-array operations each, and no matrix product,
whose threads would be in the way of other workers.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from metta_fast.contracts.env import Array


class AreaResize:
    """Shrinks images of one size to another; the sides of the result are at most those of the image."""

    def __init__(self, size: tuple[int, int], to: tuple[int, int]) -> None:
        """size, to: (height, width)."""
        (high, wide), (rows, columns) = size, to
        self._rows, self._columns = _taps(high, rows), _taps(wide, columns)
        self._screen = np.empty(size, np.float32)
        self._first, self._next = (np.empty((rows, wide), np.float32) for _ in range(2))
        self._sum, self._part = (np.empty(to, np.float32) for _ in range(2))

    def __call__(self, screen: Array, out: Array) -> None:
        """Writes the small image. screen [height, width] uint8; out, of the other size, uint8, rounded to nearest."""
        np.copyto(self._screen, screen)
        for k, (index, weight) in enumerate(self._rows):
            part = self._next if k else self._first
            np.take(self._screen, index, 0, out=part, mode="clip")
            part *= weight[:, None]
            if k:
                self._first += part
        for k, (index, weight) in enumerate(self._columns):
            part = self._part if k else self._sum
            np.take(self._first, index, 1, out=part, mode="clip")
            part *= weight
            if k:
                self._sum += part
        np.rint(self._sum, out=self._sum)
        np.copyto(out, self._sum, casting="unsafe")


def _taps(size: int, to: int) -> list[tuple[Array, Array]]:
    """Returns, for each pixel that an output pixel may cover, (index [to], weight [to] float32)."""
    scale = size / to
    start = np.arange(to) * scale
    first = np.floor(start + 1e-9).astype(np.intp)
    taps = []
    for k in range(ceil(scale) + 1):
        pixel = first + k
        covered = np.minimum(start + scale, pixel + 1) - np.maximum(start, pixel)
        weight = np.where(covered > 1e-9, covered, 0.0) / scale
        if weight.any():
            taps.append((np.minimum(pixel, size - 1), weight.astype(np.float32)))
    return taps
