"""Finds lift_cube's cube in pictures."""

from __future__ import annotations

import numpy as np

from metta_fast.contracts.env import Array


def red(picture: Array) -> Array:
    """Returns bool [..., height, width]: where the cube is. picture: uint8 [..., height, width, 3 or 4]."""
    wide = picture.astype(int)
    return np.asarray((wide[..., 0] > 90) & (wide[..., 0] > 2 * wide[..., 1]))
