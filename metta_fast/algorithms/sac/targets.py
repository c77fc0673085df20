"""Target networks: slow copies of the critics (Lillicrap et al. 2015, arXiv 1509.02971, section 3; Polyak averaging).

θ̄ ← (1 − τ) θ̄ + τ θ
"""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def target_of(module: M) -> M:
    """Returns a copy that has no gradients."""
    return copy.deepcopy(module).requires_grad_(False)


class Follow:
    """Moves a target towards its module. The tensors stay in place, as CUDA graphs need."""

    def __init__(self, target: nn.Module, module: nn.Module, tau: float) -> None:
        self._to = [*target.parameters(), *(b for b in target.buffers() if b.is_floating_point())]
        self._from = [*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())]
        self.tau = tau

    @torch.no_grad()
    def __call__(self) -> None:
        torch._foreach_lerp_(self._to, [x.detach() for x in self._from], self.tau)
