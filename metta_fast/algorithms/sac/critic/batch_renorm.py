"""Batch renormalisation of the critics' layers (algorithm.batch_norm), without target networks.

    x̂ = (x − μ_B) / σ_B · r + d        y = γ x̂ + β
    r = clip(σ_B / σ, 1/3, 3)          d = clip((μ_B − μ) / σ, −5, 5)          no gradient through r and d
    μ ← μ + m (μ_B − μ)                σ² ← σ² + m (σ_B² − σ²)          m = max(0.01, 1 / batches so far)

μ_B, σ_B are a batch's, of rows with a weight; μ, σ the running ones, which alone are used for the actor's loss. With
r = 1 and d = 0 it is batch normalisation; as the running figures settle it becomes the same function of one row alone.

A batch holds (s, a) and (s′, a′) side by side, so that one set of figures fits both, and y = R + discount · V(s′) is
computed from the critics themselves: there are no target networks, and `tau` has no effect.

Sources: Ioffe 2017 (arXiv 1702.03275), algorithm 1; critics of both states in one batch: Bhatt et al. 2024 (CrossQ,
arXiv 1902.05605), section 3 and appendix on batch renormalisation (limits 3 and 5, momentum 0.99).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

LARGEST_SCALE, LARGEST_SHIFT, MOMENTUM, EPSILON = 3.0, 5.0, 0.01, 1e-5


class BatchRenorm(nn.Module):
    """Renormalises the units of E networks: [E, B, width].

    Attributes:
        weight: [B] of the rows, while a batch trains it; None: the running figures are used.
    """

    running_mean: Tensor
    running_var: Tensor
    batches: Tensor

    def __init__(self, members: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(members, 1, width))
        self.shift = nn.Parameter(torch.zeros(members, 1, width))
        self.register_buffer("running_mean", torch.zeros(members, 1, width))
        self.register_buffer("running_var", torch.ones(members, 1, width))
        self.register_buffer("batches", torch.zeros(()))
        self.weight: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            normal = self._renormalized(x.float()) if self.weight is not None else self._settled(x.float())
            return normal * self.scale + self.shift

    def _settled(self, x: Tensor) -> Tensor:
        return (x - self.running_mean) * (self.running_var + EPSILON).rsqrt()

    def _renormalized(self, x: Tensor) -> Tensor:
        assert self.weight is not None
        weight = (self.weight / self.weight.sum().clamp(min=1)).unsqueeze(-1)  # [B, 1]
        mean = (x * weight).sum(1, keepdim=True)
        var = ((x - mean).square() * weight).sum(1, keepdim=True)
        deviation = (var + EPSILON).sqrt()
        with torch.no_grad():
            known = (self.running_var + EPSILON).sqrt()
            r = (deviation / known).clamp(1 / LARGEST_SCALE, LARGEST_SCALE)
            d = ((mean - self.running_mean) / known).clamp(-LARGEST_SHIFT, LARGEST_SHIFT)
            self.batches += 1
            share = (1 / self.batches).clamp(min=MOMENTUM)
            share = share * (self.weight.sum() > 0)  # a batch without rows changes nothing
            self.running_mean += share * (mean - self.running_mean)
            self.running_var += share * (var - self.running_var)
        return (x - mean) / deviation * r + d
