"""Sizes of the built-in image networks, and the memory they take. No torch here: the estimate before a run reads it.

    policy.image_encoder=nature     three convolutions without padding (Mnih et al. 2015, Nature 518)
    policy.image_encoder=impala     three stages of two residual blocks each (Espeholt et al. 2018, arXiv 1802.01561)

A convolution of 8 × 8 with stride 4 leaves nothing of a small image, so that nature's first layer is 4 × 4 with
stride 2 where a side is under SMALL pixels. The modules: metta_fast/policy/encoding/images.py.
"""

from __future__ import annotations

from typing import NamedTuple

from metta_fast.contracts.env import EnvSpec, Leaf
from metta_fast.contracts.errors import UserError

SMALL = 60
"""The side from which on nature's first convolution is the paper's."""
IMPALA = (16, 32, 32)
"""Channels of impala's stages; each halves the sides."""
KEPT = 8
"""Bytes that each unit of a layer takes: its output, before and after the activation, in float32."""


class Convolution(NamedTuple):
    """One square convolution without padding."""

    channels: int
    kernel: int
    stride: int

    def side(self, pixels: int) -> int:
        """Returns the side of its output."""
        return (pixels - self.kernel) // self.stride + 1


def nature_layers(height: int, width: int) -> tuple[Convolution, ...]:
    """Returns nature's convolutions for an image of this size."""
    first = Convolution(32, 8, 4) if min(height, width) >= SMALL else Convolution(32, 4, 2)
    return first, Convolution(64, 4, 2), Convolution(64, 3, 1)


def least_side(encoder: str) -> int:
    """Returns the smallest side, in pixels, of an image that these convolutions read."""
    if encoder == "impala":
        return 2 ** len(IMPALA)
    side = 1
    for layer in reversed(nature_layers(1, 1)):
        side = (side - 1) * layer.stride + layer.kernel
    return side


def image_size(name: str, leaf: Leaf, encoder: str = "nature") -> tuple[int, int, int]:
    """Returns (channels, height, width) of an image.

    Raises:
        UserError: it is no image of two or three axes, or too small for the encoder.
    """
    shape, axis = leaf.shape, leaf.channel_axis
    given = f"observation {name!r} ({'×'.join(map(str, shape))} {leaf.dtype}) is of kind image"
    cure = "give policy.encoder=mlp, which reads plain numbers, or your own as policy.encoder=my_module:MyEncoder"
    sides: tuple[int, ...]
    if len(shape) == 2 and axis is None:
        sides, channels = shape, 1
    elif len(shape) == 3 and axis is not None:
        sides, channels = (*shape[:axis], *shape[axis + 1 :]), shape[axis]
    else:
        raise UserError(
            f"{given}: the image encoder reads height × width, or three axes of which Leaf.channel_axis names the "
            f"channels; {cure}"
        )
    least = least_side(encoder)
    if min(sides) < least:
        smaller = least_side("impala")
        other = f"policy.image_encoder=impala, which reads sides from {smaller} on, or "
        raise UserError(
            f"{given}, but its sides are {sides[0]} and {sides[1]}: policy.image_encoder={encoder} reads sides from "
            f"{least} pixels on; give {other if min(sides) >= smaller else ''}policy.encoder=mlp, which reads plain "
            f"numbers, or another kind (of an environment in Python: env.leaf_kinds.{name}=symbols or flat)"
        )
    return channels, sides[0], sides[1]


def image_memory(encoder: str, spec: EnvSpec, width: int) -> tuple[int, int]:
    """Returns (bytes of activations for each row, number of weights) of the networks over all leaves of `spec`."""
    units = weights = 0
    for name, leaf in spec.obs.items():
        channels, high, wide = image_size(name, leaf, encoder)
        units += channels * high * wide
        if encoder == "impala":
            for out in IMPALA:
                units += out * high * wide
                high, wide = (high + 1) // 2, (wide + 1) // 2
                units += 5 * out * high * wide
                weights += 9 * out * (channels + 4 * out) + 5 * out
                channels = out
        else:
            for layer in nature_layers(high, wide):
                high, wide = layer.side(high), layer.side(wide)
                units += layer.channels * high * wide
                weights += layer.channels * (channels * layer.kernel**2 + 1)
                channels = layer.channels
        weights += channels * high * wide * width
    return KEPT * units, weights + width
