"""The learning rate by agent steps: a pure function, so that a resume needs nothing but the step count."""

from __future__ import annotations

import math

from metta_fast.config import TrainerConfig

REFERENCE_MINIBATCH = 16384
"""trainer.learning_rate is meant for minibatches of so many rows where trainer.lr_scaling is not none."""


def progress(config: TrainerConfig, steps: int) -> float:
    """How much of total_timesteps is done, 0 … 1."""
    return min(1.0, steps / config.total_timesteps)


def learning_rate(config: TrainerConfig, steps: int) -> float:
    """The optimizer's step size for the update after `steps` agent steps.

    constant: learning_rate; linear, cosine: from it down to 0 at total_timesteps. lr_scaling multiplies by
    m (linear) or √m (sqrt) with m = minibatch_size / 16384.
    """
    ratio = config.minibatch_size / REFERENCE_MINIBATCH
    scale = {"none": 1.0, "sqrt": math.sqrt(ratio), "linear": ratio}[config.lr_scaling]
    done = progress(config, steps)
    factor = {"constant": 1.0, "linear": 1.0 - done, "cosine": 0.5 * (1.0 + math.cos(math.pi * done))}[
        config.schedule
    ]
    return config.learning_rate * scale * factor
