"""Encodes an observation, in the environment's dtypes, as one vector for each row, [T, B, width].

ImageEncoder      images: convolutions (encoding/images.py)
SymbolEncoder     grids of symbols: embeddings (encoding/symbols.py)
MLPEncoder        compact and dense grid observations, and flat ones of any leaves
TokenEncoder      the grid's tokens, [200, 3] uint8 (location, feature, value)
AnyTokenEncoder   [n, 3] uint8 tokens of an unknown vocabulary
JoinedEncoder     several, each over the leaves of some kinds

Which of them reads what: metta_fast/config/encoders.py. Your own comes in there too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.config.encoders import (
    IMAGE,
    SYMBOLS,
    by_encoder,
    check_reads,
    encoder_of_kind,
    find_encoder,
    own_encoder,
)
from metta_fast.config.extension import described, has_keywords, keywords
from metta_fast.config.keys import PolicyConfig
from metta_fast.config.policy_inputs import OURS, only
from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.policy.encoding.images import ImageEncoder
from metta_fast.policy.encoding.symbols import SymbolEncoder
from metta_fast.policy.encoding.token_bag import are_there
from metta_fast.policy.grid.layout import LAYOUTS, amount, layout_of
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.initial import RELU, orthogonal_linear
from metta_fast.policy.plan import ACTIVATIONS, Trunk, first_layer


class MLPEncoder(nn.Module):
    """Two layers. The first is a sum: one part for each grid leaf, and one for all other leaves side by side.

    Other leaves are read as plain numbers: uint8 is neither divided by 255 nor convolved (encoding/images.py does
    both).
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
    """Sums over the grid's tokens an embedding of (location, feature), times the scaled value; a second layer follows.

    Kinds, orientations and actions are categories, not amounts: each has its own embedding (grid/layout.py).
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
    """Encodes tokens of an unknown vocabulary as (feature + value · slope of feature) ⊙ location, all embeddings; takes
    their sum and maximum over the tokens; two layers follow.

    Values are scaled to log2(1 + v) / 2. Locations and features are bytes; an empty token (255) adds nothing.
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
        there = are_there(obs[self.leaf]).unsqueeze(-1)
        known = self.feature(feature.int()) + amount(value, torch.float32).unsqueeze(-1) * self.slope(
            feature.int()
        )
        each = (known * self.location(location.int())).masked_fill(~there, 0.0)  # [T, B, n, size]
        pooled = torch.cat([each.sum(-2) * self.scale, each.amax(-2)], -1)
        act = ACTIVATIONS[self.activation]
        return act(self.second(act(self.first(pooled))))


class JoinedEncoder(nn.Module):
    """Several encoders, each over the leaves of its kinds; their outputs are added."""

    def __init__(self, parts: Mapping[str, tuple[nn.Module, Sequence[str]]]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({name: part for name, (part, _) in parts.items()})
        self.leaves = {name: tuple(leaves) for name, (_, leaves) in parts.items()}

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        outputs = [
            part({leaf: obs[leaf] for leaf in self.leaves[name]}).float() for name, part in self.parts.items()
        ]
        return torch.stack(outputs).sum(0)


def make_encoder(config: PolicyConfig, spec: EnvSpec) -> nn.Module:
    """Makes the encoder that the configuration asks for, over all leaves of `spec`.

    Raises:
        UserError: it does not read this observation, or a user's encoder cannot be imported or made.
    """
    width, activation = config.hidden_size, config.activation
    ours = own_encoder(config)
    if ours is None and config.encoder is not None:
        return _made(find_encoder(config.encoder), config, spec, f"policy.encoder={config.encoder}")
    ours = ours or "mlp"
    check_reads(ours, only(spec, [leaf for leaf, x in spec.obs.items() if not encoder_of_kind(x.kind)]))
    if ours == "tokens":
        known = layout_of(spec, next(iter(spec.obs))) is LAYOUTS["tokens"]
        return (TokenEncoder if known else AnyTokenEncoder)(spec, width, activation)
    readers = by_encoder(config, spec)
    parts: dict[str, tuple[nn.Module, list[str]]] = {}
    for reader, leaves in readers.items():
        seen = only(spec, leaves)
        name = "flat" if reader is None else spec.obs[leaves[0]].kind
        made = (
            MLPEncoder(seen, width, activation)
            if reader is None
            else ImageEncoder(seen, width, activation, config.image_encoder)
            if reader == IMAGE
            else SymbolEncoder(seen, width, activation)
            if reader == SYMBOLS
            else _made(reader, config, seen, f"the encoder of {name} leaves")
        )
        if list(readers) in ([None], [IMAGE], [SYMBOLS]):
            return made
        parts[name] = made, leaves
    return JoinedEncoder(parts)


def _made(encoder: Any, config: PolicyConfig, spec: EnvSpec, where: str) -> nn.Module:
    """Calls a user's encoder."""
    name = getattr(encoder, "__name__", str(encoder))
    alone = config.name in OURS  # otherwise a user's policy may read the keys
    keys = keywords(encoder, config.params, "policy.params", 3) if alone or has_keywords(encoder, 3) else {}
    try:
        made = encoder(spec, config.hidden_size, config.activation, **keys)
    except UserError:
        raise
    except BaseException as error:  # a script may call sys.exit
        if is_interrupt(error):
            raise
        raise UserError(
            f"{where}: {name}(spec, width, activation) failed: {described(error)}; see metta_fast/config/encoders.py"
        ) from error
    if not isinstance(made, nn.Module):
        raise UserError(f"{where}: {name} gave a {type(made).__name__}, expected a torch.nn.Module")
    return made
