"""Encoders: an observation in the environment's dtypes to one vector for each row, [T, B, width].

MLPEncoder     compact and dense grid observations, and flat ones of any leaves
TokenEncoder   [n, 3] uint8 tokens (location, feature, value)
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn

from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.policy.grid.layout import LAYOUTS, amount, layout_of
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.initial import RELU, orthogonal_linear
from metta_fast.policy.plan import ACTIVATIONS, Trunk, first_layer

EMPTY = 255
"""Location and feature of a token that is not there."""


class MLPEncoder(nn.Module):
    """Two layers. The first is a sum: a part for each grid leaf, one for all others side by side.

    Numbers of other leaves enter as they are: uint8 is symbolic, neither an image nor divided by 255.
    """

    def __init__(self, spec: EnvSpec, width: int, activation: str = "relu") -> None:
        super().__init__()
        self.activation = activation
        layouts = {leaf: layout_of(spec, leaf) for leaf in spec.obs}
        self.parts = nn.ModuleDict(
            {leaf: SparseLayer(layout, width) for leaf, layout in layouts.items() if layout}
        )
        self.flat = [leaf for leaf in spec.obs if layouts[leaf] is None]
        inputs = sum(prod(spec.obs[leaf].shape) for leaf in self.flat)
        self.first = orthogonal_linear(inputs, width, RELU) if self.flat else None
        self.second = orthogonal_linear(width, width, RELU)

    def trunk(self, core: nn.Module | None = None) -> Trunk:
        """Returns what `forward` computes, with the core that follows."""
        return Trunk(
            leaves=(*self.parts, *self.flat),
            sparse=dict(self.parts.items()),  # type: ignore[arg-type]
            flat=tuple(self.flat),
            first=self.first,
            second=self.second,
            activation=self.activation,
            core=core,
        )

    def first_layer(self, obs: dict[str, Tensor], rows: Tensor | None = None) -> Tensor:
        """See `Trunk.first_layer`."""
        return first_layer(self.parts, self.flat, self.first, obs, rows)  # type: ignore[arg-type]

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        act = ACTIVATIONS[self.activation]
        return act(self.second(act(self.first_layer(obs))))


class TokenEncoder(nn.Module):
    """Grid tokens: an embedding for each pair of location and feature, times the value scaled by its range,
    added up over the tokens; a second layer follows.

    Kinds, orientations and actions are names, not amounts: each has an embedding of its own (grid_layout.py).
    """

    def __init__(self, spec: EnvSpec, width: int, activation: str = "relu") -> None:
        super().__init__()
        self.activation = activation
        self.leaf = next(iter(spec.obs))
        self.tokens = SparseLayer(LAYOUTS["tokens"], width)
        self.second = orthogonal_linear(width, width, RELU)

    def trunk(self, core: nn.Module | None = None) -> Trunk:
        """Returns what `forward` computes, with the core that follows."""
        return Trunk(
            leaves=(self.leaf,),
            sparse={self.leaf: self.tokens},
            second=self.second,
            activation=self.activation,
            core=core,
        )

    def first_layer(self, obs: dict[str, Tensor], rows: Tensor | None = None) -> Tensor:
        """See `Trunk.first_layer`."""
        return self.tokens(obs[self.leaf]) if rows is None else self.tokens.at_rows(obs[self.leaf], rows)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        act = ACTIVATIONS[self.activation]
        return act(self.second(act(self.first_layer(obs))))


class AnyTokenEncoder(nn.Module):
    """Tokens of an unknown vocabulary: (feature + value · slope of feature) ⊙ location, each an embedding;
    sum and maximum over the tokens; two layers.

    Values enter as log2(1 + v) / 2. Locations and features are bytes; an empty token (255) adds nothing.
    """

    def __init__(self, spec: EnvSpec, width: int, activation: str = "relu") -> None:
        super().__init__()
        self.activation = activation
        self.leaf, leaf = next(iter(spec.obs.items()))
        size = min(width, 64)
        self.scale = leaf.shape[0] ** -0.5
        self.feature, self.slope, self.location = (nn.Embedding(256, size) for _ in range(3))
        self.first = orthogonal_linear(2 * size, width, RELU)
        self.second = orthogonal_linear(width, width, RELU)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        location, feature, value = obs[self.leaf].unbind(-1)  # [T, B, n] each
        there = ((location != EMPTY) & (feature != EMPTY)).unsqueeze(-1)
        known = self.feature(feature.int()) + amount(value, torch.float32).unsqueeze(-1) * self.slope(
            feature.int()
        )
        each = (known * self.location(location.int())).masked_fill(~there, 0.0)  # [T, B, n, size]
        pooled = torch.cat([each.sum(-2) * self.scale, each.amax(-2)], -1)
        act = ACTIVATIONS[self.activation]
        return act(self.second(act(self.first(pooled))))


def make_encoder(name: str, spec: EnvSpec, width: int, activation: str = "relu") -> nn.Module:
    """The encoder of this name ("mlp", "tokens") for the environment's observation.

    Args:
        activation: a name of ACTIVATIONS.

    Raises:
        UserError: it does not read this observation.
    """
    leaves = list(spec.obs.items())
    tokens = len(leaves) == 1 and leaves[0][1].dtype == "uint8" and leaves[0][1].shape[1:] == (3,)
    given = ", ".join(f"{leaf} {list(x.shape)} {x.dtype}" for leaf, x in leaves)
    if name == "tokens":
        if not tokens:
            raise UserError(
                f"policy tokens reads [n, 3] uint8 tokens, but {spec.name} gives {given}; give "
                "env.observation=tokens (grid) or policy=mlp"
            )
        known = layout_of(spec, leaves[0][0]) is LAYOUTS["tokens"]
        return (TokenEncoder if known else AnyTokenEncoder)(spec, width, activation)
    if any(layout_of(spec, leaf) is LAYOUTS["tokens"] for leaf, _ in leaves):
        raise UserError(
            f"policy mlp does not read tokens, but {spec.name} gives {given}; give policy=tokens, or "
            "env.observation=compact"
        )
    return MLPEncoder(spec, width, activation)
