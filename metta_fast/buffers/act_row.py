"""Defines what one step of a policy in a rollout reads and writes; every form of that step takes it.

Place in the flow: rollout/act.py has the network's own step, policy/fused_act the kernel in its place.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor


class ActRow(NamedTuple):
    """Views of one row of N agents, whose leading axis is time. L: the core's layers, H: its size, W: action width."""

    obs: dict[str, Tensor]
    """{leaf: [1, N, *shape]} in the environment's dtype."""
    state: Tensor
    """[L, N, H] the core's state before the row; becomes the state after it."""
    reset: Tensor
    """[1, N] bool: the state is zeroed before the row."""
    noise: Tensor
    """[1, N, W] float32: uniform (discrete) or normal (box)."""
    action: Tensor
    """[1, N, W], written."""
    logprob: Tensor
    """[1, N] float32, written."""
    value: Tensor
    """[1, N] float32, written."""
    action_mask: Tensor | None = None
    """[1, N, P] bool: False forbids the choice; None: every choice is legal."""


class Act(Protocol):
    """A form of the policy's step in a rollout."""

    def __call__(self, row: ActRow) -> None:
        """Choose the row's actions: write action, logprob, value and the core's next state."""
