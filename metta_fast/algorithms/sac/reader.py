"""What actor and critics read of a batch: observations as they are stored ─► normalised, and stacked to frames.

    seen = reader.read(obs, state, reset)        # once for a batch
    reader.params(policy, seen)                  # the actor's distribution
    critics.features(seen.critic)

A policy normalises by itself (policy/normalize.py) and stacks by itself (policy/frame_stack.py); its critics read the
same numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from metta_fast.policy.base import Policy
from metta_fast.policy.frame_stack import FrameStack


class Seen(NamedTuple):
    """A batch of B rows."""

    actor: dict[str, Tensor]
    """What `params` gives to the policy, {leaf: [1, B, …]}."""
    critic: dict[str, Tensor]
    """{leaf: [1, B, …]}, normalised, with stacked frames."""
    state: Tensor
    reset: Tensor


def read(policy: Policy, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> Seen:
    """Reads rows {leaf: [1, B, *shape]}, with the policy's states [layers, B, size] before them and reset [1, B]."""
    if isinstance(policy, FrameStack):
        windows, core, _ = policy.seen(obs, state, reset)
        return Seen(windows, windows, core, reset)
    critic = obs if policy.normalizer is None else policy.normalizer(obs)
    return Seen(obs, critic, state, reset)


def params(policy: Policy, seen: Seen) -> Tensor:
    """Returns the parameters of the action distribution [B, P]."""
    network = policy.stacked if isinstance(policy, FrameStack) else policy
    found: Tensor = network(seen.actor, seen.state, seen.reset).params
    return found[0]
