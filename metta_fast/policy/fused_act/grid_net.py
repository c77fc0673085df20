"""Says which grid policies can act in C (c_act.h), and gives their parts."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metta_fast.policy.encoders import MLPEncoder
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.network import beyond_plain

MOST_HEADS = 16
"""As in mlp_network.h."""
MOST_CHOICES = 256
"""Of all heads together."""
MOST_HIDDEN = 512
"""Wider layers are torch's: they no longer fit into a core's cache (at 512 an update takes 0.7 of torch's time, at 1024
1.3)."""


class GridNet(NamedTuple):
    """A sparse first layer over one leaf of the observation, a second layer, the heads and the value."""

    leaf: str
    first: SparseLayer
    second: nn.Linear
    heads: nn.Linear
    nvec: tuple[int, ...]

    @property
    def hidden(self) -> int:
        """Width of both layers."""
        return self.second.out_features

    def parameters(self) -> list[Tensor]:
        """Weight and bias of each layer, all that the policy has."""
        return [p for layer in (self.first, self.second, self.heads) for p in (layer.weight, layer.bias)]


def not_a_grid_net(policy: Any) -> str | None:
    """Why C cannot stand for this policy, or None."""
    beyond = beyond_plain(policy)
    if beyond is not None:
        return beyond
    encoder = policy.encoder
    if isinstance(encoder, MLPEncoder) and (len(encoder.parts) != 1 or encoder.flat):
        return "an observation beside the grid's, or without one"
    nvec = policy.head.nvec
    if len(nvec) > MOST_HEADS or sum(nvec) > MOST_CHOICES:
        return f"more than {MOST_HEADS} heads or {MOST_CHOICES} choices"
    if encoder.second.out_features % 8 or encoder.second.out_features > MOST_HIDDEN:
        return f"policy.hidden_size is no multiple of 8, or above {MOST_HIDDEN}"
    if any(p.dtype != torch.float32 or not p.is_contiguous() for p in policy.parameters()):
        return "weights that are not float32, or not contiguous"
    return None


def grid_net(policy: Any) -> GridNet:
    """The parts of a policy for which `not_a_grid_net` gives None."""
    encoder = policy.encoder
    if isinstance(encoder, MLPEncoder):
        ((leaf, first),) = encoder.parts.items()
        return GridNet(leaf, first, encoder.second, policy.heads, policy.head.nvec)  # type: ignore[arg-type]
    return GridNet(encoder.leaf, encoder.tokens, encoder.second, policy.heads, policy.head.nvec)
