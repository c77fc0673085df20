"""Computes how a schedule lets a number fall over a run: trainer.schedule, trainer.clip_schedule."""

from __future__ import annotations

import math


def left(schedule: str, done: float) -> float:
    """Returns the factor, 1 … 0, that `schedule` applies after `done` (0 … 1) of the run."""
    return {
        "constant": 1.0,
        "linear": 1.0 - done,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * done)),
        "adaptive": 1.0,
    }[schedule]
