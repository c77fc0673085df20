"""Computes the policy's step of one row in a rollout.

    plain      the network as it is
    compiled   the same as one function, by torch.compile
    fused      one Triton kernel, for the policies that it knows (policy/fused_act)

All three are called alike (buffers/act_row.py: Act), so a rollout does not know which one it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metta_fast.buffers.act_row import Act, ActRow
from metta_fast.policy.base import Policy

if TYPE_CHECKING:
    from metta_fast.policy.fused_act.triton_act import FusedAct


class Choice(NamedTuple):
    """What a policy's step gives for a row."""

    action: Tensor
    """[1, N, W]."""
    logprob: Tensor
    """[1, N]."""
    value: Tensor
    """[1, N]."""
    state: Tensor
    """[L, N, H] after the row."""


def choose(
    policy: Policy,
    obs: dict[str, Tensor],
    state: Tensor,
    reset: Tensor,
    noise: Tensor,
    action_mask: Tensor | None = None,
) -> Choice:
    """Runs the policy on a row and samples its actions; arguments as those of ActRow."""
    head: Any = policy.head  # with masks an ActionHead
    out = policy(obs, state, reset)
    params = out.params if action_mask is None else head.masked(out.params, action_mask)
    action, logprob = head.sample(params, noise)
    return Choice(action, logprob, out.value, out.state)


Choose = Callable[
    [dict[str, Tensor], Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
]


def make_act(policy: Policy) -> Choose:
    """Returns `choose` as one function that writes nothing, for torch.compile.

    (obs {leaf: [1, n, …]}, state [L, n, H], reset [1, n], noise [1, n, W],
    action_mask [1, n, P] or None) →
    (action [1, n, W], logprob [1, n], value [1, n], state [L, n, H], the action as the environment gets it).
    """
    head = policy.head

    def act(
        obs: dict[str, Tensor], state: Tensor, reset: Tensor, noise: Tensor, action_mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        choice = choose(policy, obs, state, reset, noise, action_mask)
        return *choice, head.to_env(choice.action)

    return act


class ActInto:
    """Writes `choose` into the row: the plain form of Act."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __call__(self, row: ActRow) -> None:
        choice = choose(self.policy, row.obs, row.state, row.reset, row.noise, row.action_mask)
        row.action.copy_(choice.action)
        row.logprob.copy_(choice.logprob)
        row.value.copy_(choice.value)
        if row.state.numel():
            row.state.copy_(choice.state)


class Acts:
    """Holds the forms of a policy's step that a rollout has.

    Attributes:
        plain: what the others are compared with.
        fused: the kernel, or None. Call its `update()` after the weights have changed.
        best: the quickest of them.
    """

    def __init__(
        self, policy: Policy, *, fused: torch.dtype | None = None, compile_mode: str | None = None
    ) -> None:
        """fused: the dtype of the kernel's layers, if the path FUSED_ACT was chosen; None: no kernel.
        compile_mode: torch.compile's; None: not compiled."""
        self.plain = ActInto(policy)
        self.fused: FusedAct | None = None
        self.best: Act = self.plain
        if fused is not None:
            from metta_fast.policy.fused_act.triton_act import FusedAct

            self.fused = self.best = FusedAct(policy, fused)
        elif compile_mode is not None:
            self.best = torch.compile(self.plain, mode=compile_mode, dynamic=False)
