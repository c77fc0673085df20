"""Divides rewards by the standard deviation of the discounted return, so that values are of order one.

Without it a task whose rewards are small drowns: Adam moves the value by about the learning rate whatever the
reward's size, and advantage normalisation blows that noise up to the size of a signal. The scale only multiplies:
what is optimal stays optimal. (Scaled rewards are not clipped, as is often done: in the grid it made the batteries
put into an altar cost as much as the heart they become is worth, and agents learnt to hoard.)

Place in the flow: after a rollout and its statistics (which see the rewards as they are), before the advantage.
The variance is that of R[t] = γ·R[t−1]·(1 − done[t−1]) + r[t] over all rows so far (Welford, merged by epochs:
Chan et al. 1979), and is frozen within an epoch. Source: Engstrom et al. 2020 (arXiv 2005.12729), section 3.

The deviation is at least

    √(mean r² of the rewards that are not 0 / (their number + 1))     before there is variance: a first single reward
    |mean of R| / MOST                                                rewards that hardly vary

so that scaled rewards begin at order one, and one of a thousand rows is no outlier of a hundred. Once rewards are
common and vary, neither bound is above the deviation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers
from metta_fast.distributed.group import current
from metta_fast.distributed.moments import merged, over_processes
from metta_fast.runtime.state_tensors import tensor
from metta_fast.storage.altered import entry

EPSILON = 1e-8
"""Added to the variance."""
MOST = 5.0
"""R's mean divided by the deviation is at most this."""
MOMENTS = 5
OLDER_MOMENTS = 3
"""Number of moments in the checkpoints of earlier versions."""
WHERE = "reward_scale."
"""Beginning of the keys in messages."""


class RewardScale:
    """Keeps the running variance of the discounted return, which checkpoints hold."""

    def __init__(self, num_agents: int, gamma: float, device: torch.device) -> None:
        self.gamma = gamma
        self.discounted = torch.zeros(num_agents, device=device)
        """[N] float32: R of the last row."""
        self.moments = torch.zeros(MOMENTS, dtype=torch.float64, device=device)
        """count, mean, sum of squared deviations of R; number of rewards that are not 0, sum of their squares."""
        self.factor = torch.ones((), dtype=torch.float64, device=device)
        """[] float64: what the last rollout's rewards were multiplied by."""

    def restart(self) -> None:
        """Start again after a reset of all environments; the variance stays."""
        self.discounted.zero_()

    def apply(self, buffers: Buffers) -> None:
        """Add the rollout's rewards [T, N] to the variance, then scale them in place.

        Rewards that are not finite make a scale that is not: all are then left as they are, to be named.
        """
        mask = buffers.mask[: buffers.horizon]
        keep = self.gamma * (~(buffers.terminal | buffers.truncation)).float()
        reward = torch.where(mask, buffers.reward, 0.0)  # a masked row takes no part, whatever stands in it
        series = torch.empty_like(reward)
        running = self.discounted
        for t in range(buffers.horizon):
            torch.add(reward[t], running, out=series[t])
            running = series[t] * keep[t]
        self.discounted.copy_(running)
        self._merge(series, mask, reward)
        scale = self._scale()
        self.factor.copy_(torch.where((scale > 0) & scale.isfinite(), scale, 1.0))
        buffers.reward.mul_(self.factor)

    def _scale(self) -> Tensor:
        """Returns 1 / the deviation [] float64; 1 before any reward."""
        count, mean, squares, number, energy = self.moments.unbind()
        variance = squares / count.clamp(min=1) + EPSILON
        first = energy / (number.clamp(min=1) * (number + 1))
        least = torch.maximum(first, (mean / MOST).square())
        return torch.where(number == 0, 1.0, torch.maximum(variance, least).rsqrt())

    def _merge(self, series: Tensor, mask: Tensor, reward: Tensor) -> None:
        count, mean, squares, number, energy = self.moments.unbind()
        new = mask.sum()
        values = torch.where(mask, series, 0.0).double()
        new_mean = values.sum() / new.clamp(min=1)
        new_squares = torch.where(mask, values - new_mean, 0.0).square().sum()
        group = current()
        found = torch.stack([reward.count_nonzero().double(), reward.double().square().sum()])
        group.sum_(found)
        all_new = over_processes((new, new_mean, new_squares), mean, group)
        count, mean, squares = merged((count, mean, squares), all_new)
        self.moments.copy_(torch.stack([count, mean, squares, number + found[0], energy + found[1]]))

    def state_dict(self) -> dict[str, Any]:
        return {"discounted": self.discounted.clone(), "moments": self.moments.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of a run; with another number of agents, R starts at 0. An older run counted no rewards: its
        variance is used as it is."""
        moments = tensor(entry(state, "moments", WHERE), f"{WHERE}moments", (None,))
        discounted = tensor(entry(state, "discounted", WHERE), f"{WHERE}discounted", (None,))
        if len(moments) == OLDER_MOMENTS:
            moments = torch.cat([moments, moments[:1], moments.new_zeros(1)])
        self.moments.copy_(tensor(moments, f"{WHERE}moments", self.moments.shape))
        if discounted.shape == self.discounted.shape:
            self.discounted.copy_(discounted)
