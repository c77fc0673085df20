"""Names the encoders: which class turns which leaves of an observation into one vector. No torch here.

    policy.encoder=null              by policy.name and the leaves' kinds: images by convolutions, symbols by
                                     embeddings where policy.symbol_encoder=embedding, others flat
    policy.encoder=mlp               all leaves flat, as plain numbers
    policy.encoder=token_bag         one leaf of tokens by the sum of hashed embeddings (policy/encoding/token_bag.py)
    policy.encoder=my_module:Cnn     your own, over all leaves; or the name of an entry point of metta_fast.encoders

    register_encoder("image", Cnn)   your own, over the leaves of this kind, in a program that calls metta_fast.train

An encoder is a torch.nn.Module, made as Cnn(spec, width, activation, **policy.params) for a spec that has its leaves
only. forward({leaf: [T, B, *shape]}) returns [T, B, width]. It may have

    @staticmethod
    def memory(spec, width) -> EncoderMemory     # for the estimate before a run; otherwise it is taken as a flat one's
    def trunk(self, core) -> Trunk               # its layers, for fast paths (policy/plan.py)
"""

from __future__ import annotations

from importlib import import_module
from math import prod
from typing import Any, NamedTuple

from metta_fast.config.encoding.image_layers import image_memory, image_size
from metta_fast.config.encoding.symbol_layers import symbol_memory
from metta_fast.config.extension import (
    ENCODERS,
    entry_point,
    entry_point_names,
    is_module_name,
    load_named,
)
from metta_fast.config.keys import PolicyConfig, did_you_mean, shown
from metta_fast.config.policy_inputs import OURS as POLICIES
from metta_fast.config.policy_inputs import only
from metta_fast.contracts.env import KINDS, EnvSpec, Leaf
from metta_fast.contracts.errors import UserError

OURS = ("mlp", "tokens")
"""Values of policy.encoder that need no other code."""
BUILT_IN = {"token_bag": "metta_fast.policy.encoding.token_bag:TokenBag"}
"""Others that come with metta_fast, and where they are."""
IMAGE = "image"
"""The reader, in `by_encoder`, of images for which no encoder is registered: policy/encoding/images.py."""
SYMBOLS = "symbols"
"""Likewise, of symbols with policy.symbol_encoder=embedding: policy/encoding/symbols.py."""
GRID_COLUMNS = 4096
"""Inputs of the first layer over a grid observation, at most; they are decoded within its kernel."""
GRID_TOKENS = (200, 3)
"""Shape of the grid's own tokens."""

_registered: dict[str, type] = {}


class EncoderMemory(NamedTuple):
    """An encoder's memory."""

    row: int
    """Bytes of activations for each row, beside those of two layers of its width."""
    weights: int
    """Number of weights."""


def register_encoder(name: str, encoder: type) -> None:
    """Makes an encoder known: by a kind of leaf (KINDS), which it then reads by itself, or as policy.encoder=name."""
    _registered[name] = encoder


def encoder_of_kind(kind: str) -> type | None:
    """Returns the encoder that was registered for a kind of leaf, or None."""
    return _registered.get(kind) if kind in KINDS else None


def check_encoder_name(name: str | None) -> None:
    """Raises UserError where policy.encoder is neither known nor the form of module:name."""
    if name is None or is_module_name(name):
        return
    known = [*OURS, *BUILT_IN, *_registered, *entry_point_names(ENCODERS)]
    if name not in known:
        raise UserError(
            f"policy.encoder={name!r}: {did_you_mean(name, known)}expected {', '.join(known)}, null, or your own "
            "as package.module:Class"
        )


def find_encoder(name: str) -> Any:
    """Returns the class that policy.encoder names, not one of OURS."""
    check_encoder_name(name)
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return getattr(import_module(module), attribute)
    if is_module_name(name):
        return load_named(name, "policy.encoder")
    return _registered.get(name) or entry_point(ENCODERS, name, "policy.encoder")


def is_tokens(name: str, leaf: Leaf) -> bool:
    """Whether a leaf holds tokens: its environment says so, or it is the grid's own token observation."""
    return leaf.kind == "tokens" or (
        leaf.dtype == "uint8" and leaf.shape == GRID_TOKENS and (leaf.kind == "grid" or name == "tokens")
    )


def check_reads(name: str, spec: EnvSpec) -> None:
    """Checks that the encoder "mlp" or "tokens" reads these leaves.

    Raises:
        UserError: tokens that mlp would read as numbers, or other leaves than one of tokens.
    """
    leaves = list(spec.obs.items())
    given = ", ".join(f"{leaf} {list(x.shape)} {x.dtype}" for leaf, x in leaves)
    grid = any(leaf.kind == "grid" for leaf in spec.obs.values())
    if name == "tokens":
        if len(leaves) != 1 or leaves[0][1].dtype != "uint8" or leaves[0][1].shape[1:] != (3,):
            cure = "policy=mlp" if not grid else "env.observation=tokens or policy=mlp"
            raise UserError(
                f"policy tokens reads [n, 3] uint8 tokens, but {spec.name} gives {given}; give {cure}"
            )
    elif any(is_tokens(leaf, x) for leaf, x in leaves):
        cure = ", or env.observation=compact" if grid else ""
        raise UserError(
            f"policy mlp does not read tokens, but {spec.name} gives {given}; give policy=tokens{cure}"
        )


def own_encoder(config: PolicyConfig) -> str | None:
    """Returns which of OURS reads the observation; None: a user's policy or encoder does."""
    if config.name not in POLICIES or config.encoder not in (None, *OURS):
        return None
    return config.encoder or config.name


def check_no_params(config: PolicyConfig) -> None:
    """Raises UserError for policy.params where neither the policy nor the encoder is a user's."""
    if config.params and own_encoder(config) is not None:
        first = next(iter(config.params))
        raise UserError(
            f"policy.params.{first}={shown(config.params[first])}: policy {config.name} has no keys of its own; "
            f"leave it out, or give policy=my_module:Net, whose __init__(config, spec, *, {first}) takes it"
        )


def flat_memory(spec: EnvSpec, width: int) -> EncoderMemory:
    """Returns the memory of two layers, the first over all leaves side by side; a grid's are decoded in its kernel."""
    inputs = sum(0 if leaf.kind == "grid" else prod(leaf.shape) for leaf in spec.obs.values())
    return EncoderMemory(6 * inputs, width * ((inputs or GRID_COLUMNS) + width))


def by_encoder(config: PolicyConfig, spec: EnvSpec) -> dict[type | str | None, list[str]]:
    """Returns the leaves that each encoder of ours reads; None: the flat ones, if there are any.

    A class was registered for its kind of leaf; IMAGE and SYMBOLS are the built-in encoders of such leaves. With
    policy.encoder=mlp all leaves are flat.
    """
    if config.encoder is not None:
        return {None: list(spec.obs)}
    built_in = {"image": IMAGE} | ({"symbols": SYMBOLS} if config.symbol_encoder == "embedding" else {})
    found: dict[type | str | None, list[str]] = {}
    for name, leaf in spec.obs.items():
        found.setdefault(encoder_of_kind(leaf.kind) or built_in.get(leaf.kind), []).append(name)
    return found


def check_images(config: PolicyConfig, spec: EnvSpec) -> None:
    """Raises UserError for an image that the built-in encoder should read and cannot."""
    if own_encoder(config) == "mlp":
        for name in by_encoder(config, spec).get(IMAGE, []):
            image_size(name, spec.obs[name], config.image_encoder)


def encoder_memory(config: PolicyConfig, spec: EnvSpec) -> EncoderMemory:
    """Returns the memory of the encoder that the configuration asks for; the encoder itself says it."""
    readers = by_encoder(config, spec)
    if config.encoder not in (None, *OURS):
        readers = {find_encoder(config.encoder): list(spec.obs)}
    parts = [
        EncoderMemory(*image_memory(config.image_encoder, only(spec, leaves), config.hidden_size))
        if reader == IMAGE
        else EncoderMemory(*symbol_memory(only(spec, leaves), config.hidden_size))
        if reader == SYMBOLS
        else getattr(reader, "memory", flat_memory)(only(spec, leaves), config.hidden_size)
        for reader, leaves in readers.items()
    ]
    return EncoderMemory(sum(part.row for part in parts), sum(part.weights for part in parts))
