"""Defines the result of PPO's loss, plain (loss.py) or fused (triton/)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

STATS = ("policy", "value", "entropy", "kl", "clip_fraction")
"""What `ppo_loss` reports, logged as loss/<name>."""

EPSILON = 1e-8


class Loss(NamedTuple):
    """The result of one minibatch."""

    loss: Tensor
    """scalar, differentiable."""
    stats: Tensor
    """[len(STATS)] float32, detached."""
    ratio: Tensor
    """[L, B] π/π_old, detached; 1 on masked rows."""
