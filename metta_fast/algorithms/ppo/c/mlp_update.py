"""The update of two small networks on the CPU by C (cpu_update.h) instead of some hundred of torch's operators.

A minibatch of 64 rows through 2×64 tanh layers, actions and value apart, costs torch 1.5 ms: nearly all of it is the
operators' own overhead. Robots learn from hundreds of such minibatches a rollout.

Place in the flow: native_update.py takes it where `supports` finds nothing against it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metta_fast.algorithms.ppo.c._mlp_update import MOST_LEAVES, Networks  # type: ignore[attr-defined]
from metta_fast.algorithms.ppo.c.base import ACTIVATIONS, NativeUpdate
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.encoders import MLPEncoder
from metta_fast.policy.network import Network

MOST_WORK = 1 << 18
"""Rows of a minibatch times width: larger products are torch's, which shares them among threads."""
MOST_ACTIONS = 256


def supports(policy: Any, buffers: Buffers, config: TrainerConfig) -> str | None:
    """What stands against it beside `native_update.unsupported`, or None."""
    if (
        type(policy) is not Network
        or policy.core is not None
        or policy.critic is None
        or policy.log_std is None
    ):
        return "not a feed-forward network with policy.shared=false and policy.state_std=false"
    head = policy.head
    if not isinstance(head, BoxHead) or head.squash or head.width > MOST_ACTIONS:
        return "not a clipped normal distribution"
    for encoder in (policy.encoder, policy.critic["encoder"]):
        if not isinstance(encoder, MLPEncoder) or len(encoder.parts) or len(encoder.flat) > MOST_LEAVES:
            return "not a flat observation"
        if any(buffers.obs[leaf].dtype != torch.float32 for leaf in encoder.flat):
            return "not an observation of float32"
    hidden: int = policy.heads.in_features
    if hidden % 8 or hidden * config.minibatch_size > MOST_WORK:
        return "policy.hidden_size is no multiple of 8, or too much work for one core"
    return None


class CpuUpdate(NativeUpdate):
    """On one core."""

    def __init__(
        self, policy: Any, buffers: Buffers, config: TrainerConfig, optimizer: Any, clip: Tensor
    ) -> None:
        """Only where `supports` gives None."""
        super().__init__(policy, buffers, config, optimizer, clip)
        encoder = policy.encoder
        self._reads = encoder.flat, policy.critic["encoder"].flat
        self._parameters = [policy.log_std]
        for trunk, last in ((encoder, policy.heads), (policy.critic["encoder"], policy.critic["value"])):
            for layer in (trunk.first, trunk.second, last):
                self._parameters += [layer.weight, layer.bias]
        hidden = encoder.second.out_features
        self._own = Networks(
            encoder.first.in_features,
            0 if self._reads[0] == self._reads[1] else policy.critic["encoder"].first.in_features,
            hidden,
            policy.head.width,
            ACTIVATIONS[encoder.activation],
            config.minibatch_size,
        )

    def _networks(self, tensors: list[tuple[int, int, int]], rollout_value: Tensor) -> Any:
        b, own = self._buffers, self._own
        own.tensors(tensors)
        own.leaves(*([self._leaf(name) for name in leaves] for leaves in self._reads))
        arrays = (b.action, b.logprob, rollout_value, b.advantage, b.returns, b.mask)
        own.rows(*(array.data_ptr() for array in arrays))
        return own

    def _leaf(self, name: str) -> tuple[int, int, int, int]:
        """Where its rows lie, the normaliser's shift and scale of it (0, 0: there is none), and its size."""
        rows = self._buffers.obs[name]
        normalizer = getattr(self._policy, "normalizer", None)
        moments = (0, 0)
        if normalizer is not None:
            part = slice(*normalizer.parts[name])
            moments = normalizer.shift[part].data_ptr(), normalizer.scale[part].data_ptr()
        return rows.data_ptr(), *moments, rows[0, 0].numel()
