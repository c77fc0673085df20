"""Records of a run at a boundary: its state, its speed, its score."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from metta_fast.contracts.algorithm import POLICY_STATE


@dataclass(frozen=True)
class Snapshot:
    """The state of a run at a boundary, as a checkpoint holds it: copies, because training continues."""

    step: int
    epoch: int
    states: dict[str, Any]
    """{"algorithm": …, "env": a state, a function that gives it, or None}: see checkpoint.save."""
    seconds: float
    """Training time of the run up to here, over all its sessions."""
    score: dict[str, Any] | None = None
    """{"name": "eval/return" or "env/return", "value": …}: what makes one checkpoint better than another."""

    def finite(self) -> bool:
        """Returns False if any weight of the policy is NaN or infinite: such a state is not saved."""
        import torch

        weights = self.states["algorithm"].get(POLICY_STATE, {}).values()
        return all(
            bool(torch.isfinite(w).all())
            for w in weights
            if isinstance(w, torch.Tensor) and w.is_floating_point()
        )


class Speed:
    """Measures steps per second since the last row and since this session started."""

    def __init__(self, step: int) -> None:
        self._first = self._last = (step, time.monotonic())

    def leave_out(self, seconds: float) -> None:
        """Excludes the last `seconds`: nothing was trained in them."""
        (first_step, first_time), (last_step, last_time) = self._first, self._last
        self._first, self._last = (first_step, first_time + seconds), (last_step, last_time + seconds)

    def row(self, step: int) -> dict[str, float]:
        now = time.monotonic()
        (first_step, first_time), (last_step, last_time) = self._first, self._last
        self._last = (step, now)
        return {
            "perf/steps_per_second": (step - last_step) / max(now - last_time, 1e-9),
            "perf/steps_per_second_mean": (step - first_step) / max(now - first_time, 1e-9),
        }


class Score:
    """Scores a checkpoint: by its evaluation's return, else by the mean env/return since the last checkpoint."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._sum, self._count = 0.0, 0
        self._evaluation: float | None = None

    def add(self, row: dict[str, float]) -> None:
        value = row.get("env/return", math.nan)
        if math.isfinite(value):
            self._sum, self._count = self._sum + value, self._count + 1
        value = row.get("eval/return", math.nan)
        if math.isfinite(value):
            self._evaluation = value

    def value(self) -> dict[str, Any] | None:
        if self._evaluation is not None:
            return {"name": "eval/return", "value": self._evaluation}
        return {"name": "env/return", "value": self._sum / self._count} if self._count else None
