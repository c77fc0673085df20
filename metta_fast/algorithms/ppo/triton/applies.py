"""Checks which policies and settings the Triton kernels of the update support. It imports no Triton."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from metta_fast.config.keys import TrainerConfig
from metta_fast.policy.cores import MinGRUCore
from metta_fast.policy.fused_act.applies import power
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.plan import plan_of

WIDTHS = (16, 32, 64, 128)
MOST_NUMBERS = 2**31
"""Numbers of a layer's output for a minibatch: their places are computed in 32 bits."""
MAX_CHOICES = 64
"""Most columns: heads times choices, each rounded up to a power of two, plus one column for the value."""


def not_fused_loss(policy: nn.Module, config: TrainerConfig) -> str | None:
    """Returns why the loss of this policy cannot be computed by loss_and_backward.py, or None."""
    if config.advantage == "vtrace":
        return "trainer.advantage=vtrace needs the ratios"
    if config.recompute == "minibatch":
        return "trainer.recompute=minibatch needs the values"
    if config.precision != "bf16":
        return f"trainer.precision={config.precision}"
    plan = plan_of(policy)
    if isinstance(plan, str):
        return plan
    if beyond := plan.beyond_plain(MinGRUCore):
        return beyond
    if plan.actor.width not in WIDTHS:
        return f"policy.hidden_size={plan.actor.width}, not one of {', '.join(map(str, WIDTHS))}"
    if config.minibatch_size * plan.actor.width >= MOST_NUMBERS:
        return f"trainer.minibatch_size={config.minibatch_size} times the policy's width is not below 2^31"
    assert isinstance(plan.head, ActionHead)
    nvec = plan.head.nvec
    heads, choices = columns(nvec)
    if heads * choices == plan.actor.width == 16:  # Triton 3.6 fails to compile it for sm_90
        return "policy.hidden_size=16 with so few choices; policy.hidden_size=32 is supported"
    if heads * choices > MAX_CHOICES:
        return f"{len(nvec)} action heads of up to {max(nvec)} choices"
    return None


def columns(nvec: tuple[int, ...]) -> tuple[int, int]:
    """Returns (W, P): heads and choices per head in the kernels' layout. The last column belongs to no head."""
    heads, choices = power(len(nvec)), power(max(nvec))
    choices = max(choices, 16 // heads, 2)  # a product has at least 16 columns
    full = len(nvec) == heads and nvec[-1] == choices
    return heads, 2 * choices if full else choices


def odd_parameters(parameters: Sequence[Tensor]) -> str | None:
    """Returns why optimizer_step.py cannot step these weights, or None."""
    if any(p.dtype != torch.float32 or not p.is_contiguous() or not p.numel() for p in parameters):
        return "a parameter is not float32 and contiguous"
    return "parameters on several devices" if len({p.device for p in parameters}) > 1 else None
