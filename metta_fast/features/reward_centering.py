"""Subtracts the mean reward from every reward, for tasks that go on: reward centering.

    features={reward_centering: {rate: 0.05}}

With r the reward as the loss would see it (after trainer.normalize_reward) and r̄ its running mean over rollouts,

    r̃[t] = r[t] − r̄        o ← o + β(1 − o),   r̄ ← r̄ + (β / o)(mean of the rollout's r − r̄)

The value then no longer has to learn the constant r̄ / (1 − γ), which is large for γ near 1. r̄ begins as the first
rollout's mean (o corrects the start). It is that of the rollouts before and the present one.

For tasks whose episodes end by a time limit, or never. Where an episode ends by what the agent does, a constant that is
taken from each reward changes what is optimal: ending early costs, or earns, r̄ a step.
Source: Naik, Wan, Tomar and Sutton 2024, "Reward Centering" (arXiv:2405.09999), simple centering.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Built, Context, Hooks
from metta_fast.distributed.group import current
from metta_fast.features.every import every, number, whole_number
from metta_fast.runtime.state_tensors import tensor
from metta_fast.storage.altered import entry

NAME = "reward_centering"


def add(hooks: Hooks, *, rate: float = 0.05, interval_epochs: int = 10) -> None:
    """Centers the rewards of each rollout.

    Args:
        rate: β, above 0 … 1: share of the newest rollout in the mean; 1 takes each rollout's own mean.
        interval_epochs: epochs between two values of `features/reward_mean`; 0: never.

    Raises:
        UserError: a value out of range.
    """
    number(f"features.{NAME}.rate", rate, 1e-6, 1.0)
    whole_number(f"features.{NAME}.interval_epochs", interval_epochs, 0)
    centering = RewardCentering(float(rate))
    hooks.on_build.append(centering.build)
    hooks.on_update.append(centering)
    hooks.states[NAME] = centering
    if interval_epochs:
        hooks.on_epoch.append(_Figure(centering, interval_epochs))


class RewardCentering:
    """Owns the running mean."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._moments = torch.zeros(2, dtype=torch.float64)
        """r̄, and o of the correction."""

    def build(self, built: Built) -> None:
        self._moments = self._moments.to(built.buffers.device)

    @property
    def mean(self) -> Tensor:
        """[] float64 on the buffers' device."""
        return self._moments[0]

    def __call__(self, context: Context) -> None:
        """Takes in a rollout's rewards [T, N], and subtracts the mean from them in place. Masked rows take no part."""
        b = context.buffers
        mask = b.mask[: b.horizon]
        reward = torch.where(mask, b.reward, 0.0)
        sums = torch.stack([reward.double().sum(), mask.sum().double()])
        current().sum_(sums)
        total, count = sums.unbind()
        mean, o = self._moments.unbind()
        grown = o + self.rate * (1 - o)
        new = mean + self.rate / grown * (total / count.clamp(min=1) - mean)
        good = (count > 0) & new.isfinite()  # rewards that are not finite are named by the algorithm
        self._moments.copy_(torch.where(good, torch.stack([new, grown]), self._moments))
        b.reward.copy_(torch.where(mask, b.reward - self._moments[0].float(), b.reward))

    def state_dict(self) -> dict[str, Any]:
        return {"moments": self._moments.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        where = f"features.{NAME}.moments"
        self._moments.copy_(tensor(entry(state, "moments", f"features.{NAME}."), where, (2,)))


class _Figure:
    """Logs the mean. An `on_epoch` hook that is called in some epochs."""

    def __init__(self, centering: RewardCentering, epochs: int) -> None:
        self._centering, self.due = centering, every(epochs)

    def __call__(self, context: Context) -> dict[str, float]:
        return {"features/reward_mean": float(self._centering.mean)}
