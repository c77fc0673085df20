"""Checks for which policies a rollout's row can be one call: in C on the CPU, or one Triton kernel on a GPU.

Place in the flow: rollout/c_rollout.py and rollout/act.py ask it when a run is built. It imports no Triton.
"""

from __future__ import annotations

import torch
from torch import nn

from metta_fast.policy.cores import MinGRUCore
from metta_fast.policy.grid.layout import LAYOUTS
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.plan import Plan, plan_of
from metta_fast.runtime.fast_paths import Situation

MOST_HEADS = 16
"""Most heads, as in mlp_network.h."""
MOST_CHOICES = 256
"""Most choices of all heads together, in C."""
MOST_HIDDEN = 512
"""Largest width in C: wider layers do not fit a core's cache, and torch is faster."""
MAX_WIDTH = 256
"""Largest width on a GPU: two such layers fit a multiprocessor's shared memory."""
MAX_CHOICES = 64
"""Most logits on a GPU, where they stay in registers: heads times choices, each rounded up to a power of two."""


def not_plain_cpu(situation: Situation) -> str | None:
    """Returns why the policy on the CPU is not plain float32, the only type that C supports, or None."""
    if situation.trainer.precision != "fp32":
        return f"trainer.precision={situation.trainer.precision}: it computes in float32"
    return "trainer.compile=true" if situation.trainer.compile else None


def not_in_c(plan: Plan) -> str | None:
    """Returns why a row of a policy with this plan cannot be computed in C, or None."""
    if beyond := plan.beyond_plain():
        return beyond
    trunk, head = plan.actor, plan.head
    assert isinstance(head, ActionHead)
    if len(trunk.sparse) != 1 or trunk.flat:
        return "an observation beside the grid's, or without one"
    if too_many := many_choices(head):
        return too_many
    if trunk.width % 8 or trunk.width > MOST_HIDDEN:
        return f"policy.hidden_size={trunk.width} is not a multiple of 8, or above {MOST_HIDDEN}"
    return odd_weights(plan)


def many_choices(head: ActionHead) -> str | None:
    """Returns why C does not support the heads' sizes, or None."""
    if len(head.nvec) > MOST_HEADS or sum(head.nvec) > MOST_CHOICES:
        return f"more than {MOST_HEADS} action heads or {MOST_CHOICES} choices"
    return None


def odd_weights(plan: Plan) -> str | None:
    """Returns why C cannot read the weights in place, or None."""
    if any(p.dtype != torch.float32 or not p.is_contiguous() for p in plan.parameters()):
        return "weights that are not float32, or not contiguous"
    return None


def not_in_triton(policy: nn.Module, dtype: torch.dtype | None) -> str | None:
    """Returns why a row of this policy cannot be one Triton kernel with layers in `dtype`, or None."""
    plan = plan_of(policy)
    if isinstance(plan, str):
        return plan
    if beyond := plan.beyond_plain(MinGRUCore):
        return beyond
    trunk, head = plan.actor, plan.head
    assert isinstance(head, ActionHead)
    layouts = [part.layout for part in trunk.sparse.values()]
    if layouts == [LAYOUTS["tokens"]]:
        return "observations of tokens (TokenEncoder)"
    if trunk.flat or layouts != [LAYOUTS["compact"]]:
        return "observations other than compact ones alone"
    if trunk.width > MAX_WIDTH:
        return f"policy.hidden_size={trunk.width} is above {MAX_WIDTH}"
    if power(len(head.nvec)) * power(max(head.nvec)) > MAX_CHOICES:
        return f"{len(head.nvec)} action heads of up to {max(head.nvec)} choices"
    if dtype not in (torch.bfloat16, torch.float16):
        return "layers in float32 (trainer.precision)"
    return None


def power(n: int, least: int = 1) -> int:
    """Returns n rounded up to a power of two, at least `least`."""
    return max(least, 1 << (n - 1).bit_length())
