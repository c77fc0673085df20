"""Gives a policy the last K observations as one: policy.frame_stack=K.

    state ─► frames before row 0 ┐
    obs [T, B, …] ───────────────┴─► windows of K rows, zeros before a reset ─► the policy within ─► params, value
                                     the last K−1 rows ─► state

The frames are a part of the policy's state, as a core's memory is: rollout, evaluation, replay, export, load_policy and
resume carry them and zero them as any state. Observations are normalised frame by frame, before frames of another
episode are zeroed. Source: Mnih et al. 2015 (Nature 518); zeros at an episode's start as in Stable-Baselines3's
VecFrameStack.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metta_fast.buffers.frames import Frames, zeroed
from metta_fast.config.frame_stack import new_axis, place
from metta_fast.contracts.env import EnvSpec, Leaf
from metta_fast.policy.base import Policy, PolicyOutput
from metta_fast.policy.normalize import Normalizer


class FrameStack(Policy):
    """A policy over single frames, made of one over stacks of K."""

    def __init__(
        self, policy: Policy, spec: EnvSpec, count: int, normalizer: Normalizer | None = None
    ) -> None:
        """policy: made for `config.frame_stack.stacked(spec, count)`. spec: of one frame."""
        nn.Module.__init__(self)
        self.head = policy.head
        self.stacked = policy
        self.frames: Frames = Frames(spec, count, policy.state_shape)
        self.state_shape = self.frames.state_shape
        self.normalizer = normalizer
        self.actor_leaves, self.critic_leaves = policy.actor_leaves, policy.critic_leaves

    @property
    def log_std(self) -> Tensor | None:
        """The log of the standard deviation, where it is a parameter."""
        return getattr(self.stacked, "log_std", None)

    def forward(self, obs: dict[str, Tensor] | Tensor, state: Tensor, reset: Tensor) -> PolicyOutput:
        """See `Policy.forward`; `obs` may also be a tensor, the actor's only leaf."""
        windows, core, after = self.seen(obs, state, reset)
        params, value, core = self.stacked(windows, core, reset)
        return PolicyOutput(params, value, self.frames.join(core, after))

    def seen(
        self, obs: dict[str, Tensor] | Tensor, state: Tensor, reset: Tensor
    ) -> tuple[dict[str, Tensor], Tensor, dict[str, Tensor]]:
        """Returns what `stacked` reads, {leaf: [T, B, *stacked shape]} normalised, the core's state before row 0, and
        the frames after the last row. Arguments as `forward`'s."""
        given = {self.actor_leaves[0]: obs} if isinstance(obs, Tensor) else obs
        core, past = self.frames.split(state)
        count = self.frames.count
        frames = {name: torch.cat([past[name], leaf]) for name, leaf in given.items()}
        gone = _other_episodes(reset, count)
        last = gone[-1, :, 1:].t()  # the next row's past: without the oldest
        after = {name: zeroed(leaf[1 - count :], last) for name, leaf in frames.items()}
        seen = frames if self.normalizer is None else self.normalizer(frames)
        windows = {name: _windows(leaf, gone, self.frames.leaves[name]) for name, leaf in seen.items()}
        return windows, core, after

    def plan(self) -> str:
        """See `Policy.plan`."""
        return f"policy.frame_stack={self.frames.count}"


def _other_episodes(reset: Tensor, count: int) -> Tensor:
    """Returns [T, B, K] bool: frame k of row t, the oldest first, is of an earlier episode. reset: [T, B]."""
    episode = reset.int().cumsum(0)
    number = torch.cat([torch.zeros_like(episode[:1]).expand(count - 1, -1), episode])
    rows = torch.stack([number[k : k + len(reset)] for k in range(count)], -1)
    return rows != episode.unsqueeze(-1)


def _windows(frames: Tensor, gone: Tensor, leaf: Leaf) -> Tensor:
    """Returns [T, B, *stacked shape] of frames [K-1+T, B, *shape]; frames that are `gone` [T, B, K] are zeros."""
    rows, count = gone.shape[0], gone.shape[2]
    axis = 2 + place(leaf)
    each = torch.stack([frames[k : k + rows] for k in range(count)], axis)
    shape = [1] * each.dim()
    shape[:2], shape[axis] = gone.shape[:2], count
    each = zeroed(each, gone.view(shape))
    return each if new_axis(leaf) else each.flatten(axis, axis + 1)
