"""Computes an update's figures beside its losses: explained variance, action std, reward scale, gradient norm.

Place in the flow: ppo.py and device_ppo.py read `on_device` with the sums of the losses, once an epoch; `metrics` makes
the logged numbers of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metta_fast.algorithms.ppo.advantage.value_sums import VALUE_SUMS, explained_variance
from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.algorithm import Metrics
from metta_fast.distributed.group import current
from metta_fast.policy.base import Policy
from metta_fast.policy.box_head import BoxHead, bounded_log_std
from metta_fast.policy.mixed_head import box_of
from metta_fast.rollout.reward_scale import RewardScale

FIGURES = (*VALUE_SUMS, "reward_scale", "action_std")
ROWS = 1024
"""Most rows that a deviation which depends on the observation is the mean of."""


class Figures:
    """Collects FIGURES on the learner's device, without waiting."""

    def __init__(
        self, policy: Policy, buffers: Buffers, reward_scale: RewardScale | None, device: torch.device
    ) -> None:
        self.policy, self.buffers, self.reward_scale, self.device = policy, buffers, reward_scale, device
        self._none = torch.full((1,), torch.nan, dtype=torch.float64, device=device)

    def on_device(self, value_sums: Tensor) -> Tensor:
        """Returns [len(FIGURES)] float64. value_sums: the learner's. NaN: there is no such figure."""
        scale = self._none if self.reward_scale is None else self.reward_scale.factor.view(1).to(self.device)
        box = box_of(self.policy.head)
        std = self._none if box is None else self._std(box).view(1)
        group = current()
        own = torch.cat([value_sums.to(self.device), std.double() / group.world])
        group.sum_(own)  # the deviation of observations: the mean over the processes'
        return torch.cat([own[:-1], scale, own[-1:]])

    @torch.no_grad()
    def _std(self, head: BoxHead) -> Tensor:
        """Returns the present policy's mean standard deviation: of all observations, or of the rollout's first rows."""
        log_std: Any = getattr(self.policy, "log_std", None)
        if isinstance(log_std, Tensor):
            return bounded_log_std(log_std).exp().mean()
        b = self.buffers
        obs = {name: leaf[:1, :ROWS].to(self.device) for name, leaf in b.obs.items()}
        state, reset = b.first_state(slice(ROWS)).to(self.device), b.reset[:1, :ROWS].to(self.device)
        params = self.policy(obs, state.contiguous(), reset).params
        return head.spread(params[..., -head.num_params :])


def metrics(figures: list[float], sums: dict[str, float], rows: int) -> Metrics:
    """Returns the metrics of FIGURES as read from the device.

    Args:
        sums: the update's sums by name (step.py: SUMS). rows: agent steps of the rollout.
    """
    total = dict(zip(FIGURES, figures)) | sums
    found: Metrics = {name: total[name[6:]] for name in ("train/reward_scale", "train/action_std")}
    found = {name: value for name, value in found.items() if value == value}
    steps = total["optimizer_steps"]
    if steps:
        found["train/gradient_norm"] = total["gradient_norm"] / steps
        found["train/samples_per_gradient_step"] = rows / steps
    explained = explained_variance({name: total[name] for name in VALUE_SUMS})
    return found if explained is None else found | {"loss/explained_variance": explained}
