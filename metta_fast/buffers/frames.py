"""Packs the frames before the present one into a policy's state, and unpacks them (policy.frame_stack).

    state [1, B, F + layers · size]  ─► split ─► core's state [layers, B, size], past {leaf: [K-1, B, *shape]}
                                     ◄── join ◄─

F numbers of each agent are its last K−1 frames, oldest first, zeros where the episode had not begun. Bytes are packed
by threes into the whole numbers that a float32 holds exactly; others are one float32 each, in which whole numbers
beyond 2^24 and float64 are rounded, as the network's own conversion to float32 does.

Place in the flow: policy/frame_stack.py has them between rows. The buffers keep the frames before row 0, and find those
of a later segment's start among their rows, so that a rollout has each frame once.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from metta_fast.config.frame_stack import PACKED, is_packed, state_numbers
from metta_fast.contracts.env import EnvSpec

BASE = 256
"""Values of a byte."""
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""Unsigned dtypes and the signed ones of their size."""


class Frames:
    """The layout of a state that holds frames. K = `count`; F = `numbers`; (layers, size) is the core's."""

    def __init__(self, spec: EnvSpec, count: int, core: tuple[int, int] = (0, 0)) -> None:
        """spec: of one frame. core: the core's (layers, size), whose state stands behind the frames'."""
        self.count, self.core = count, core
        self.leaves = dict(spec.obs)
        self.numbers = state_numbers(spec, count)
        self.state_shape = (1, self.numbers + core[0] * core[1])

    def split(self, state: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the core's state [layers, B, size] and the frames {leaf: [K-1, B, *shape]} in the leaves' dtypes."""
        frames, core = state[0].split([self.numbers, state.shape[2] - self.numbers], -1)
        agents = state.shape[1]
        rest = (
            core.unflatten(-1, self.core).transpose(0, 1) if self.core[0] else state.new_zeros(0, agents, 0)
        )
        past, start = {}, 0
        for name, leaf in self.leaves.items():
            total = (self.count - 1) * prod(leaf.shape)
            taken = -(-total // PACKED) if is_packed(leaf) else total
            part = frames[:, start : start + taken]
            numbers = _bytes(part)[:, :total] if is_packed(leaf) else part
            dtype = getattr(torch, leaf.dtype)
            if is_packed(leaf) and dtype.is_signed:
                numbers = numbers - (numbers >= BASE // 2) * BASE
            shaped = numbers.unflatten(1, (self.count - 1, *leaf.shape)).transpose(0, 1)
            past[name] = shaped.to(dtype)
            start += taken
        return rest, past

    def join(self, core: Tensor, past: dict[str, Tensor]) -> Tensor:
        """Returns the state [1, B, F + layers · size] float32 of what `split` returns; a leaf left out is zeros."""
        agents, parts = core.shape[1], []
        for name, leaf in self.leaves.items():
            total = (self.count - 1) * prod(leaf.shape)
            if name not in past:
                parts.append(
                    core.new_zeros(agents, -(-total // PACKED) if is_packed(leaf) else total).float()
                )
                continue
            numbers = past[name].transpose(0, 1).flatten(1)
            parts.append(_packed(numbers) if is_packed(leaf) else numbers.float())
        if self.core[0]:
            parts.append(core.float().transpose(0, 1).flatten(1))
        return torch.cat(parts, -1).unsqueeze(0)

    def from_rows(self, core: Tensor, rows: dict[str, Tensor], reset: Tensor) -> Tensor:
        """Returns the state after K−1 rows {leaf: [K-1, B, *shape]} of which `reset` [K-1, B] begin an episode."""
        begun = reset.flip(0).int().cumsum(0).flip(0)  # resets in this row or a later one
        gone = torch.cat([begun[1:], begun[:1] * 0]) > 0
        return self.join(core, {name: zeroed(leaf, gone) for name, leaf in rows.items()})


def zeroed(frames: Tensor, gone: Tensor) -> Tensor:
    """Returns frames […, *shape] with zeros where `gone` […, 1 …] bool, whose missing axes are the last ones."""
    gone = gone.view(*gone.shape, *[1] * (frames.dim() - gone.dim()))
    signed = SIGNED.get(frames.dtype)  # torch fills no others
    if signed is None:
        return frames.masked_fill(gone, 0)
    return frames.view(signed).masked_fill(gone, 0).view(frames.dtype)


def _packed(numbers: Tensor) -> Tensor:
    """Returns [B, ⌈n / 3⌉ float32] of bytes [B, n]: the first third, plus 256 times the second, plus 256² the third."""
    n = -(-numbers.shape[1] // PACKED)
    values = numbers.int() & (BASE - 1)
    values = torch.nn.functional.pad(values, (0, n * PACKED - numbers.shape[1]))
    low, middle, high = values.split(n, 1)
    return (low + middle * BASE + high * BASE**2).float()


def _bytes(packed: Tensor) -> Tensor:
    """Returns bytes [B, 3 n], as int32, of [B, n] float32."""
    whole = packed.int()
    return torch.cat([whole & (BASE - 1), (whole // BASE) & (BASE - 1), (whole // BASE**2) & (BASE - 1)], 1)
