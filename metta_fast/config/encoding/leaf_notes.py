"""Says how the network reads each leaf of an observation: notes before a run, and lines of --explain. No torch here.

obs: image, uint8 84×84×1, channels last     # sides of at least 24 pixels and 1 channel; convolutions (nature)
map: symbols, uint8 7×7×3, channels last     # smaller than 24 a side; embeddings of at most 11, 6, 3 symbols
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from metta_fast.config.encoders import IMAGE, SYMBOLS, by_encoder, is_tokens, own_encoder
from metta_fast.config.encoding.symbol_layers import vocabularies
from metta_fast.config.keys import PolicyConfig
from metta_fast.config.policy_inputs import reads
from metta_fast.contracts.env import EnvSpec, Leaf

DECLARED = "declared where the environment is made"


def read_notes(policy: PolicyConfig, spec: EnvSpec) -> list[str]:
    """Returns notes on images, symbols, and other bytes of three axes, and how the network reads them."""
    if own_encoder(policy) in (None, "tokens"):
        return []
    notes, readers = [], _readers(policy, spec)
    for name, leaf in spec.obs.items():
        reader = readers.get(name, "")
        what = f"{spec.name}: observation {name!r} ({_shape(leaf)} {leaf.dtype})"
        if reader == IMAGE and leaf.dtype == "uint8":
            notes.append(
                f"{what} is an image: it is divided by 255 and read by convolutions "
                f"(policy.image_encoder={policy.image_encoder}); policy.encoder=mlp reads numbers"
            )
        elif reader == SYMBOLS:
            notes.append(
                f"{what} is symbols: numbers that are names, read by {_embeddings(leaf)}; if they are amounts, "
                f"env.leaf_kinds.{name}=flat"
            )
        elif (
            reader is None
            and leaf.dtype == "uint8"
            and (len(leaf.shape) == 3 or leaf.kind == "image")
            and leaf.kind != "grid"
            and not is_tokens(name, leaf)
        ):
            notes.append(
                f"{what} enters the network as {prod(leaf.shape)} plain numbers 0 … 255, and policy.normalize_obs "
                f"leaves integers as they are; leave out policy.encoder, give env.leaf_kinds.{name}=image or symbols, "
                "or divide by 255 in the environment (float32)"
            )
    return notes


def kind_lines(policy: PolicyConfig, spec: EnvSpec, reasons: Mapping[str, str]) -> list[tuple[str, str]]:
    """Returns for each leaf (what it is, why and how it is read).

    Args:
        reasons: why each leaf has its kind, where that is known.
    """
    readers, lines = _readers(policy, spec), []
    for name, leaf in spec.obs.items():
        axis = leaf.channel_axis
        place = "" if axis is None else f", channels {('first', 'in the middle', 'last')[axis]}"
        kind = "flat" if leaf.kind == "vector" else leaf.kind
        lines.append(
            (
                f"{name}: {kind}, {leaf.dtype} {_shape(leaf)}{place}",
                f"{reasons.get(name, DECLARED)}; {_how(policy, name, leaf, readers)}",
            )
        )
    return lines


def _readers(policy: PolicyConfig, spec: EnvSpec) -> dict[str, type | str | None]:
    """Returns what reads each leaf, by its name: see by_encoder. A leaf that nothing reads is missing."""
    read = {name for leaves in reads(policy, spec) for name in leaves}
    return {
        name: reader for reader, names in by_encoder(policy, spec).items() for name in names if name in read
    }


def _how(policy: PolicyConfig, name: str, leaf: Leaf, readers: Mapping[str, type | str | None]) -> str:
    ours = own_encoder(policy)
    if name not in readers:
        return "not read (policy.actor_obs, policy.critic_obs)"
    if ours is None:
        return f"read by {policy.encoder or policy.name}"
    reader = readers[name]
    if reader == IMAGE:
        return f"read by convolutions (policy.image_encoder={policy.image_encoder})"
    if reader == SYMBOLS:
        return f"read by {_embeddings(leaf)} (policy.symbol_encoder=embedding)"
    if isinstance(reader, type):
        return f"read by {reader.__name__}"
    return "read by the token encoder" if ours == "tokens" else "read by dense layers"


def _embeddings(leaf: Leaf) -> str:
    sizes = [size for _, size in vocabularies(leaf)]
    shown = ", ".join(map(str, sizes[:4])) + (" …" if len(sizes) > 4 else "")
    return f"embeddings of {shown} symbols" + (" a channel" if len(sizes) > 1 else "")


def _shape(leaf: Leaf) -> str:
    return "×".join(map(str, leaf.shape))
