"""Describes what a policy sees with policy.frame_stack=K: the last K observations of each agent as one. No torch here.

    kind of leaf                        one frame        K frames
    image or symbols with channels      H×W×C, C×H×W     H×W×(K·C), (K·C)×H×W
    image or symbols without            H×W              K×H×W, H×W×K
    anything else                       n×…              (K·n)×…

The oldest frame comes first, as in Gymnasium's FrameStackObservation. Frames from before the episode are zeros. The
environment, the rollout's buffers and exported files have single frames: policy/frame_stack.py makes the stacks.
"""

from __future__ import annotations

import dataclasses
from math import prod

import numpy as np

from metta_fast.contracts.env import EnvSpec, Leaf
from metta_fast.contracts.errors import UserError

PACKED = 3
"""Bytes in one float32 of the state: every whole number below 2^24 is exact."""


def new_axis(leaf: Leaf) -> bool:
    """Returns whether frames get an axis of their own: two axes of pixels or cells, without channels."""
    return len(leaf.shape) == 2 and leaf.channel_axis is None and leaf.kind in ("image", "symbols")


def place(leaf: Leaf) -> int:
    """Returns the axis of one frame, or the new one, along which frames are side by side."""
    if new_axis(leaf):
        return 0 if leaf.kind == "image" else 2
    if leaf.kind == "image" or leaf.channel_axis is not None:
        return leaf.channel_axis or 0
    return len(leaf.shape) - 1 if leaf.kind == "symbols" and len(leaf.shape) > 2 else 0


def stacked_leaf(leaf: Leaf, count: int) -> Leaf:
    """Returns the leaf of `count` frames."""
    axis, shape = place(leaf), list(leaf.shape)
    if new_axis(leaf):
        shape.insert(axis, count)
    else:
        shape[axis] *= count
    channels = axis if leaf.kind == "image" or new_axis(leaf) else leaf.channel_axis
    bounds = leaf.bounds if channels is None else leaf.bounds * count
    return dataclasses.replace(leaf, shape=tuple(shape), channel_axis=channels, bounds=bounds)


def stacked(spec: EnvSpec, count: int) -> EnvSpec:
    """Returns the spec of an observation of `count` frames; with 1, the spec itself.

    Raises:
        UserError: a leaf whose bytes have a layout of their own (a grid's, or tokens).
    """
    if count == 1:
        return spec
    for name, leaf in spec.obs.items():
        if leaf.kind in ("grid", "tokens"):
            raise UserError(
                f"policy.frame_stack={count}: observation {name!r} of {spec.name} is of kind {leaf.kind}, whose frames "
                "cannot be put side by side; leave it out, or give policy.core=mingru, which remembers"
            )
    return dataclasses.replace(spec, obs={name: stacked_leaf(leaf, count) for name, leaf in spec.obs.items()})


def is_packed(leaf: Leaf) -> bool:
    """Returns whether the state has three of the leaf's numbers in one float32: they are bytes."""
    return np.dtype(leaf.dtype).itemsize == 1


def state_numbers(spec: EnvSpec, count: int) -> int:
    """Returns how many float32 the frames before the present one take in an agent's state."""
    total = 0
    for leaf in spec.obs.values():
        numbers = (count - 1) * prod(leaf.shape)
        total += -(-numbers // PACKED) if is_packed(leaf) else numbers
    return total


def explain(spec: EnvSpec, count: int) -> str:
    """Returns a sentence for --explain: what the network sees, and what the frames cost."""
    shapes = ", ".join(
        f"{name} {'×'.join(map(str, leaf.shape))}" for name, leaf in stacked(spec, count).obs.items()
    )
    frame = sum(prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for leaf in spec.obs.values())
    return (
        f"policy.frame_stack={count}: the network sees the last {count} observations side by side ({shapes}), zeros "
        f"before the episode; the rollout has each frame once ({frame:,} bytes), and an agent's state the last "
        f"{count - 1} ({4 * state_numbers(spec, count):,} bytes)"
    )
