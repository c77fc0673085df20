"""The policy's step of one row of a rollout, its results written where they belong.

    plain      the network as it is
    compiled   the same as one function, by torch.compile
    fused      one kernel of ours, where the policy is one it knows (policy/gpu_act.py)

All three are called alike (`ActInto`), so that a rollout need not know which it has.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class ActInto:
    """The plain form."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy: Any = policy

    def __call__(
        self,
        obs: dict[str, Tensor],
        state: Tensor,
        reset: Tensor,
        noise: Tensor,
        action: Tensor,
        logprob: Tensor,
        value: Tensor,
    ) -> None:
        """obs {leaf: [1, N, …]}, state [L, N, H] (changed), reset [1, N], noise [1, N, W] → action [1, N, W],
        logprob, value [1, N]."""
        out = self.policy(obs, state, reset)
        chosen, its_logprob = self.policy.head.sample(out.params, noise)
        action.copy_(chosen)
        logprob.copy_(its_logprob)
        value.copy_(out.value)
        if state.numel():
            state.copy_(out.state)


def make_fused(policy: nn.Module, dtype: torch.dtype | None) -> Any:
    """The policy's row as one kernel with layers in `dtype`, or None where there is none for it (or no dtype)."""
    if dtype is None:
        return None
    from metta_fast.policy.fused_act.triton_act import FusedAct, supports

    return FusedAct(policy, dtype) if supports(policy, dtype) is None else None  # type: ignore[arg-type]


class Acts:
    """The forms of a policy's step that a rollout has.

    Attributes:
        plain: what the others are compared with.
        fused: the kernel; None: there is none. It wants `update()` once the weights have changed.
        best: the quickest of them.
    """

    def __init__(
        self, policy: nn.Module, *, fused: torch.dtype | None = None, compile_mode: str | None = None
    ) -> None:
        """fused: the dtype of the kernel's layers; None: never that. compile_mode: torch.compile's; None: never."""
        self.plain = ActInto(policy)
        self.fused = make_fused(policy, fused)
        self.best: Any = self.plain
        if self.fused is not None:
            self.best = self.fused
        elif compile_mode is not None:
            self.best = torch.compile(self.plain, mode=compile_mode, dynamic=False)
