"""What the updates in C have in common: which rows a pass has, PPO's settings, Adam's state in torch's tensors.

    cpu_update.py   robots: two small networks, one core
    grid_update.py  grids: one network, several threads

Place in the flow: learner.py runs a pass over the batch with one of them where `native_update` finds one. Weights and
Adam's moments stay torch's, and are changed in place: checkpoints and all else know nothing of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo.c.base import NativeUpdate
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.policy.fused_act.applies import hooks_on, plain_cpu


def native_update(
    policy: Any,
    buffers: Buffers,
    config: TrainerConfig,
    device: torch.device,
    hooks: Hooks,
    optimizer: Any,
    clip: Tensor,
) -> NativeUpdate | None:
    """The update in C that knows this policy and these settings; None: it is torch's.

    Args:
        optimizer: an Adam over all of the policy's parameters.
        clip: [], PPO's clip, read by each `run`.
    """
    from metta_fast.algorithms.ppo.c import grid_update
    from metta_fast.algorithms.ppo.c import mlp_update as cpu_update

    if hooks.sample is not None or hooks.extra_loss or unsupported(policy, config, device) is not None:
        return None
    kinds: tuple[tuple[Any, type[NativeUpdate]], ...] = (
        (cpu_update.supports, cpu_update.CpuUpdate),
        (grid_update.supports, grid_update.GridUpdate),
    )
    for supports, kind in kinds:
        if supports(policy, buffers, config) is None:
            return kind(policy, buffers, config, optimizer, clip)
    return None


def unsupported(policy: Any, config: TrainerConfig, device: torch.device) -> str | None:
    """What stands against all of them, or None. (Hooks are the learner's to look at.)"""
    if not plain_cpu(config, device):
        return "trainer.device, precision or compile"
    if config.advantage == "vtrace" or config.recompute == "minibatch" or config.gradient_accumulation > 1:
        return "trainer.advantage, recompute or gradient_accumulation"
    if hooks_on(policy) > (getattr(policy, "normalizer", None) is not None):
        return "hooks on the policy"
    if any(not p.requires_grad or p.dtype != torch.float32 for p in policy.parameters()):
        return "frozen weights, or not float32"
    return None
