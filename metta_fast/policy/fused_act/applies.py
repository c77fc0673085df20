"""When C may stand for a policy on the CPU."""

from __future__ import annotations

from typing import Any

import torch

from metta_fast.config.keys import TrainerConfig


def plain_cpu(config: TrainerConfig, device: torch.device) -> bool:
    """The policy runs on the CPU, in float32 and without a compiler: where C may stand for it."""
    return device.type == "cpu" and config.precision == "fp32" and not config.compile


def hooks_on(policy: Any) -> int:
    """Hooks on the forward pass of the policy or of a module in it: what stands for the whole would pass them by."""
    return sum(len(part._forward_pre_hooks) + len(part._forward_hooks) for part in policy.modules())
