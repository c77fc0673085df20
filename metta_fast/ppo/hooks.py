"""Where features take hold of PPO. ppo/ knows these four places; the features are in metta_fast/features.

    on_rollout(context)                  after a rollout, before advantages are computed
    sample(context) -> Sample            which segments the next minibatch holds; at most one feature gives it
    extra_loss(minibatch, output)        a scalar added to the loss of each minibatch
    on_epoch(context) -> metrics         after an update; figures to log beside PPO's own

With no hook the learner does exactly what it would do without this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metta_fast.buffers import Buffers


@dataclass
class Context:
    """What a hook may look at. Valid during the call only."""

    buffers: Buffers
    seed: int
    epoch: int
    progress: float
    """Share of total_timesteps that is done, 0 … 1."""
    update: int = 0
    """Number of the minibatch within this epoch, over all passes."""
    segments: int = 0
    """Segments that a minibatch holds."""

    def generator(self, stream: int) -> torch.Generator:
        """Keyed by (seed, stream, epoch, update), on the buffers' device. stream: the feature's own."""
        from metta_fast.ppo.random import SAMPLE, mix

        key = mix(self.seed, SAMPLE, stream, self.epoch, self.update)
        return torch.Generator(self.buffers.device).manual_seed(key)


class Sample(NamedTuple):
    """A choice of segments."""

    segments: Tensor
    """[context.segments] int64 on the buffers' device. Segment s of agent n is s · num_agents + n."""
    weight: Tensor | None = None
    """[context.segments] float32: multiplies the segment's normalised advantages. None: 1."""


@dataclass
class Hooks:
    """All features' hooks together, each list in the order in which the features were enabled."""

    on_rollout: list[Callable[[Context], None]] = field(default_factory=list)
    sample: Callable[[Context], Sample] | None = None
    extra_loss: list[Callable[[Any, Any], Tensor]] = field(default_factory=list)
    """Called with the learner's Minibatch (ppo/minibatch.py) and the policy's PolicyOutput for it."""
    on_epoch: list[Callable[[Context], dict[str, float]]] = field(default_factory=list)
