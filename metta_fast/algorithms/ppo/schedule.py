"""Computes the learning rate and PPO's clip from agent steps. Pure functions: a resume needs only the step count.

Only schedule=adaptive depends on the learner's KL; the learner keeps that rate, and checkpoints store it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metta_fast.algorithms.decay import left
from metta_fast.config.keys import TrainerConfig

REFERENCE_MINIBATCH = 16384
"""Minibatch size (rows) that trainer.learning_rate is for, unless trainer.lr_scaling=none."""

STEP = 1.5
LEAST, MOST = 1e-5, 1e-2
"""Bounds of the adaptive rate. A rate that starts outside only moves towards them."""


def progress(config: TrainerConfig, steps: int, world: int = 1) -> float:
    """Returns how far schedules are in the update after `steps` agent steps: 0 in the first, 1 in the last.

    The last update begins at most one batch before total_timesteps. A run of one update has the start's values.
    world: processes among which the batch is divided; batch and minibatch of `config` are one's share.
    """
    last = config.total_timesteps - config.batch_size * world
    return min(1.0, steps / last) if last > 0 else float(steps > 0)


def learning_rate(config: TrainerConfig, steps: int, world: int = 1) -> float:
    """Returns the learning rate of the update after `steps` agent steps.

    constant: learning_rate; linear, cosine: from learning_rate to 0 in the last update; adaptive: the initial rate.
    lr_scaling multiplies by m (linear) or √m (sqrt) with m = minibatch_size / 16384.
    """
    ratio = config.minibatch_size * world / REFERENCE_MINIBATCH
    scale = {"none": 1.0, "sqrt": math.sqrt(ratio), "linear": ratio}[config.lr_scaling]
    return config.learning_rate * scale * left(config.schedule, progress(config, steps, world))


def clip_coef(config: TrainerConfig, steps: int, world: int = 1) -> float:
    """Returns the ratio clip of the update after `steps` agent steps, by trainer.clip_schedule."""
    return config.clip_coef * left(config.clip_schedule, progress(config, steps, world))


def adapted(rate: Tensor, kl: Tensor, desired: float) -> Tensor:
    """Returns the adaptive rate after a pass whose mean KL was `kl` (scalars, on the device).

    Changes by the factor STEP, within LEAST … MOST. A KL of 0 (no step was taken) or NaN changes nothing. As in
    RSL-RL and rl_games.
    """
    lower = (rate / STEP).clamp(min=LEAST)
    higher = (rate * STEP).clamp(max=MOST)
    rate = torch.where(kl > 2 * desired, torch.minimum(lower, rate), rate)
    return torch.where((kl > 0) & (kl < desired / 2), torch.maximum(higher, rate), rate)
