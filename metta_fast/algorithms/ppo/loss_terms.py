"""Defines the result of PPO's loss, plain (loss.py) or fused (triton/)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

STATS = ("policy", "value", "entropy", "kl", "clip_fraction")
"""Names of the statistics of `ppo_loss`, logged as loss/<name>."""

EPSILON = 1e-8
"""Added to the standard deviation that advantages are divided by."""
LEAST_DEVIATION = 1e-5
"""Advantages are divided by at least this share of their mean: differences of that size are float32's rounding."""


class Loss(NamedTuple):
    """Holds the loss and statistics of one minibatch."""

    loss: Tensor
    """scalar, differentiable."""
    stats: Tensor
    """[len(STATS)] float32, detached."""
    ratio: Tensor
    """[L, B] π/π_old, detached; 1 on masked rows."""
