"""Collects rollouts as a run does, and trains it, for `--camera` (in a child)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from metta_fast.algorithms.ppo.ppo import PPO
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.build import build_parts

BURN_IN = {"cpu": 1, "cuda": 4}
"""Epochs before measuring: on a GPU graphs are captured."""
_NEVER = 10**15
"""Steps of the schedule: a benchmark never reaches its end."""


class Collecting:
    """Builds a run."""

    def __init__(self, overrides: list[str]) -> None:
        resolved = resolve(compose([f"trainer.total_timesteps={_NEVER}", *overrides]))
        self.parts = build_parts(resolved.config, resolved.factory)
        algorithm = self.parts.algorithm
        assert isinstance(algorithm, PPO), f"--camera measures PPO, not {type(algorithm).__name__}"
        self.algorithm, self.device = algorithm, self.parts.device
        for _ in range(BURN_IN[self.device.type]):
            self._epoch()

    def ready(self) -> dict[str, Any]:
        return {}

    def round(self, seconds: float) -> dict[str, Any]:
        """Returns steps a second of rollouts with the policy, and of whole epochs, each for at least `seconds`."""
        self.algorithm.collect()  # may have been made beforehand, by the last update
        return {
            "steps_per_s": self._rate(self._rollout, seconds),
            "training_steps_per_s": self._rate(self._epoch, seconds),
        }

    def close(self) -> None:
        self.parts.close()

    def _rollout(self) -> torch.Tensor:
        """Returns the number of steps that were not masked."""
        self.algorithm.collect()
        buffers = self.algorithm.buffers
        return buffers.mask[: buffers.horizon].sum()

    def _epoch(self) -> int:
        steps = self.algorithm.steps
        self.algorithm.collect()
        self.algorithm.update()
        return self.algorithm.steps - steps

    def _rate(self, work: Callable[[], int | torch.Tensor], seconds: float) -> float:
        begun, steps = self._sync(), 0
        while True:
            steps += int(work())
            if (passed := self._sync() - begun) >= seconds:
                return steps / passed

    def _sync(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
