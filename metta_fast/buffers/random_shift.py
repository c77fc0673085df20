"""Moves the images of a minibatch by whole pixels (trainer.random_shift).

    obs {leaf: [L, B, *shape]}, state ─► moved by offset [B, 2] ─► the same shapes and dtypes

Pixel (y, x) of a moved image is pixel (y + dy, x + dx) of the image, or the border's nearest: the image is padded by
repeating its border and cut back to its size elsewhere. All rows of a segment move alike, the frames before its first
row in the state too (policy.frame_stack), and so do all images of a row: a policy that remembers sees a steady picture.
Source: Yarats et al. 2021 (DrQ, arXiv:2004.13649).

Place in the flow: an algorithm's learner draws the offsets and shows the moved images to the policy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metta_fast.buffers.frames import SIGNED, Frames
from metta_fast.config.encoding.image_sides import images
from metta_fast.contracts.env import EnvSpec


class RandomShift:
    """Moves the leaves of kind image."""

    def __init__(self, spec: EnvSpec, frames: Frames | None = None) -> None:
        """spec: of one frame. frames: those that a state has beside the core's; None: none."""
        self.axes = images(spec)
        self.frames = frames

    def __call__(
        self, obs: dict[str, Tensor], state: Tensor, offset: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Returns (obs, state), moved.

        Args:
            obs: {leaf: [L, B, *shape]}.
            state: the policy's state before row 0, [layers, B, size].
            offset: [B, 2] int64: (dy, dx) of each segment, of any size.
        """
        if self.frames is not None:
            core, past = self.frames.split(state)
            state = self.frames.join(core, self._moved(past, offset))
        return self._moved(obs, offset), state

    def _moved(self, leaves: dict[str, Tensor], offset: Tensor) -> dict[str, Tensor]:
        return {
            name: moved(leaf, self.axes[name], offset) if name in self.axes else leaf
            for name, leaf in leaves.items()
        }


def moved(image: Tensor, axes: tuple[int, int], offset: Tensor) -> Tensor:
    """Returns images [L, B, *shape] moved by offset [B, 2] along `axes` of their shape."""
    signed = SIGNED.get(image.dtype)  # torch gathers no others
    if signed is not None:
        return moved(image.view(signed), axes, offset).view(image.dtype)
    for axis, distance in zip(axes, offset.unbind(1)):
        size = image.shape[2 + axis]
        place = torch.arange(size, device=image.device) + distance.unsqueeze(1)
        shape = [1] * image.dim()
        shape[1], shape[2 + axis] = place.shape
        image = image.gather(2 + axis, place.clamp(0, size - 1).view(shape).expand(image.shape))
    return image
