"""What a critic's outputs mean (algorithm.critic): its expected return, or quantiles of the return's distribution.

    mean        Q_i(s, a)                     target y = R + discount · (min_i Q̄_i − α log π)
    quantile    θ_i^1 … θ_i^M(s, a)           targets y_k = R + discount · (z_(k) − α log π), k = 1 … K

z_(1) ≤ z_(2) ≤ … are the E · M quantiles of all target critics in order, of which the E · d largest are dropped: that
takes the place of the minimum against overestimation. Each θ^m goes down the quantile Huber loss to all y_k,

    ⟨ Σ_i 1/(M K) Σ_m Σ_k |τ_m − 1(y_k < θ_i^m)| · H(y_k − θ_i^m) ⟩      τ_m = (2m − 1) / 2M
    H(u) = ½ u² for |u| ≤ 1, else |u| − ½

and the actor follows the mean of all quantiles. Sources: Kuznetsov et al. 2020 (TQC, arXiv 2005.04269), equations 8 to
14; quantile regression: Dabney et al. 2017 (arXiv 1710.10044), equation 10.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from metta_fast.algorithms.sac import losses
from metta_fast.algorithms.sac.keys import OffPolicyKeys


class Values(Protocol):
    """Reads outputs z [E, B, outputs] of critics of continuous actions."""

    outputs: int
    """Of a critic."""

    def target(self, z: Tensor) -> Tensor:
        """Returns what target critics give for the next state, [B] or [B, K]."""
        ...

    def least(self, z: Tensor) -> Tensor:
        """Returns the estimate [B] that SAC's actor follows."""
        ...

    def first(self, z: Tensor) -> Tensor:
        """Returns the estimate [B] that TD3's actor follows."""
        ...

    def mean(self, z: Tensor) -> Tensor:
        """Returns the expected return [B], for the metrics."""
        ...

    def loss(self, z: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Returns the critics' loss [] for targets [B] or [B, K]."""
        ...


class Mean:
    """One output: the expected return."""

    outputs = 1

    def target(self, z: Tensor) -> Tensor:
        return z[..., 0].amin(0)

    def least(self, z: Tensor) -> Tensor:
        return z[..., 0].amin(0)

    def first(self, z: Tensor) -> Tensor:
        return z[0, :, 0]

    def mean(self, z: Tensor) -> Tensor:
        return z[..., 0].mean(0)

    def loss(self, z: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        return losses.td_loss(z[..., 0], target, weight)


class Quantiles:
    """M quantiles of the return's distribution.

    Args:
        count: M.
        dropped: d, of each critic.
    """

    def __init__(self, count: int, dropped: int) -> None:
        self.outputs, self.dropped = count, dropped

    def target(self, z: Tensor) -> Tensor:
        members, batch, count = z.shape
        pooled = z.permute(1, 0, 2).reshape(batch, members * count)
        return pooled.sort(-1).values[:, : members * (count - self.dropped)]

    def least(self, z: Tensor) -> Tensor:
        return z.mean((0, 2))

    def first(self, z: Tensor) -> Tensor:
        return z[0].mean(-1)

    def mean(self, z: Tensor) -> Tensor:
        return z.mean((0, 2))

    def loss(self, z: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        return losses.mean(quantile_huber(z, target).sum(0), weight)


def quantile_huber(theta: Tensor, target: Tensor) -> Tensor:
    """Returns the quantile Huber loss [E, B] of quantiles [E, B, M] for targets [B, K]."""
    count = theta.shape[-1]
    tau = (torch.arange(count, device=theta.device, dtype=theta.dtype) + 0.5) / count
    error = target[:, None, :] - theta[..., None]  # [E, B, M, K]
    size = error.abs()
    huber = torch.where(size > 1, size - 0.5, 0.5 * error * error)
    below = (error.detach() < 0).to(theta.dtype)
    return ((tau[:, None] - below).abs() * huber).mean((-1, -2))


def values_of(keys: OffPolicyKeys) -> Values:
    """Returns what a run's critics mean."""
    return Mean() if keys.critic == "mean" else Quantiles(keys.quantiles, keys.dropped_quantiles)
