"""Makes the optimizer that trainer.optimizer names.

    adam    Adam over all weights (Kingma & Ba 2015, arXiv:1412.6980)
    adamw   Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101)
    muon    Muon over hidden matrices, AdamW over embedding tables, output layers and other weights (muon.py)

Weights with fewer than two dimensions (biases, norms, standard deviations) do not decay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.config.keys import TrainerConfig
from metta_fast.runtime.adam import Adam
from metta_fast.runtime.optimizers.muon import Muon

STATE = {
    "adam": ("exp_avg", "exp_avg_sq"),
    "momentum": ("momentum_buffer",),
}
"""A group's kind → the names of the tensors of a weight's shape that it keeps for each."""


def make_optimizer(
    parameters: Sequence[nn.Parameter],
    config: TrainerConfig,
    rate: float | Tensor,
    device: torch.device,
    outer: Sequence[Tensor] = (),
) -> Adam:
    """Returns the optimizer over all `parameters`.

    Args:
        rate: the learning rate; a tensor on a GPU, so that CUDA graphs follow it.
        outer: the matrices of embedding tables and output layers.
    """
    keys: dict[str, Any] = {
        "lr": rate,
        "betas": (config.beta1, config.beta2),
        "eps": config.adam_epsilon,
        "fused": True,
        "capturable": device.type == "cuda",
    }
    if config.optimizer == "muon":
        return Muon(parameters, outer, momentum=config.momentum, weight_decay=config.weight_decay, **keys)
    if config.optimizer == "adamw":
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.dim() >= 2]},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        return Adam(
            [group for group in groups if group["params"]],
            weight_decay=config.weight_decay,
            decoupled_weight_decay=True,
            **keys,
        )
    return Adam(parameters, **keys)


def kept(group: dict[str, Any]) -> tuple[str, ...]:
    """Returns the names of the tensors that the optimizer keeps for each weight of a group, beside `step`."""
    return STATE["momentum" if "momentum" in group else "adam"]
