"""Defines the parts of a grid policy that acts in C (c_act.h)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.plan import Plan


class GridNet(NamedTuple):
    """Holds a sparse first layer over one leaf of the observation, a second layer, the heads and the value."""

    leaf: str
    first: SparseLayer
    second: nn.Linear
    heads: nn.Linear
    nvec: tuple[int, ...]

    @property
    def hidden(self) -> int:
        """The width of both layers."""
        return self.second.out_features

    def parameters(self) -> list[Tensor]:
        """Weight and bias of each layer: all of the policy's parameters."""
        return [p for layer in (self.first, self.second, self.heads) for p in (layer.weight, layer.bias)]


def grid_net(plan: Plan) -> GridNet:
    """Returns the policy's parts. `applies.not_in_c` must return None for its plan."""
    ((leaf, first),) = plan.actor.sparse.items()
    assert isinstance(plan.head, ActionHead)
    return GridNet(leaf, first, plan.actor.second, plan.heads, plan.head.nvec)
