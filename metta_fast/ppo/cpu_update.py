"""The update of two small networks on the CPU by C (cpu_update.h) instead of some hundred of torch's operators.

A minibatch of 64 rows through 2×64 tanh layers, actions and value apart, costs torch 1.5 ms: nearly all of it is the
operators' own overhead. Robots learn from hundreds of such minibatches a rollout.

Place in the flow: learner.py runs a pass over the batch with it where `supports` finds nothing against it. Weights and
Adam's moments stay torch's, and are changed in place: checkpoints and all else know nothing of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from metta_fast.buffers import Buffers
from metta_fast.config import TrainerConfig
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.encoders import MLPEncoder
from metta_fast.policy.network import Network
from metta_fast.ppo._cpu_update import MOST_LEAVES, Networks  # type: ignore[attr-defined]

ACTIVATIONS = {"relu": 0, "tanh": 1, "elu": 2}
MOST_WORK = 1 << 18
"""Rows of a minibatch times width: larger products are torch's, which shares them among threads."""
MOST_ACTIONS = 256


def supports(policy: Any, buffers: Buffers, config: TrainerConfig, device: torch.device) -> str | None:
    """What stands against it, or None. (Hooks are the learner's to look at.)"""
    if device.type != "cpu" or config.precision != "fp32" or config.compile:
        return "trainer.device, precision or compile"
    if config.advantage == "vtrace" or config.recompute == "minibatch" or config.gradient_accumulation > 1:
        return "trainer.advantage, recompute or gradient_accumulation"
    if (
        type(policy) is not Network
        or policy.core is not None
        or policy.critic is None
        or policy.log_std is None
    ):
        return "not a feed-forward network with policy.shared=false and policy.state_std=false"
    hooks = len(policy._forward_pre_hooks) + len(policy._forward_hooks)
    if hooks > (getattr(policy, "normalizer", None) is not None):
        return "hooks on the policy"
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
    if any(not p.requires_grad or p.dtype != torch.float32 for p in policy.parameters()):
        return "frozen weights, or not float32"
    return None


class CpuUpdate:
    """Changes the policy's weights and the optimizer's state. All arrays are read where they lie."""

    def __init__(
        self, policy: Any, buffers: Buffers, config: TrainerConfig, optimizer: Any, clip: Tensor
    ) -> None:
        """Only where `supports` gives None; the optimizer is an Adam over all of the policy's parameters.

        clip: [], PPO's clip, read by each `run`.
        """
        self._policy, self._buffers, self._config, self._optimizer = policy, buffers, config, optimizer
        self._clip = clip
        encoder = policy.encoder
        self._reads = encoder.flat, policy.critic["encoder"].flat
        self._parameters = [policy.log_std]
        for trunk, last in ((encoder, policy.heads), (policy.critic["encoder"], policy.critic["value"])):
            for layer in (trunk.first, trunk.second, last):
                self._parameters += [layer.weight, layer.bias]
        hidden = encoder.second.out_features
        self._networks = Networks(
            encoder.first.in_features,
            0 if self._reads[0] == self._reads[1] else policy.critic["encoder"].first.in_features,
            hidden,
            policy.head.width,
            ACTIVATIONS[encoder.activation],
            config.minibatch_size,
        )
        length = torch.arange(buffers.bptt_horizon) * buffers.num_agents
        self._within = length.unsqueeze(0)

    def run(self, order: Tensor, rollout_value: Tensor, sums: Tensor) -> bool:
        """One pass over the segments in the order given; `sums` (learner.SUMS) are added to.

        Returns:
            False: target_kl was passed, and the rest of the pass left out.
        """
        b, c = self._buffers, self._config
        steps = self._states()
        group = self._optimizer.param_groups[0]
        n = b.num_agents
        rows = (order // n * (b.bptt_horizon * n) + order % n).unsqueeze(1) + self._within
        rows = rows.flatten().contiguous()
        self._networks.leaves(*([self._leaf(name) for name in leaves] for leaves in self._reads))
        arrays = (b.action, b.logprob, rollout_value, b.advantage, b.returns, b.mask)
        self._networks.rows(*(array.data_ptr() for array in arrays))
        settings = {
            "clip": float(self._clip),
            "vf_coef": c.vf_coef,
            "vf_clip": -1.0 if c.vf_clip_coef is None else c.vf_clip_coef,
            "entropy_coef": c.entropy_coef,
            "max_norm": c.max_grad_norm,
            "target_kl": -1.0 if c.target_kl is None else c.target_kl,
            "rate": float(group["lr"]),
            "beta1": group["betas"][0],
            "beta2": group["betas"][1],
            "epsilon": group["eps"],
            "normalize_advantage": int(c.normalize_advantage),
        }
        found = np.zeros(len(sums))
        whole: bool = self._networks.run(rows.data_ptr(), len(rows), c.minibatch_size, steps, settings, found)
        sums += torch.from_numpy(found).to(sums.dtype)
        for parameter in self._parameters:
            self._optimizer.state[parameter]["step"].fill_(steps + found[-1])
        return whole

    def _leaf(self, name: str) -> tuple[int, int, int, int]:
        """Where its rows lie, the normaliser's shift and scale of it (0, 0: there is none), and its size."""
        rows = self._buffers.obs[name]
        normalizer = getattr(self._policy, "normalizer", None)
        moments = (0, 0)
        if normalizer is not None:
            part = slice(*normalizer.parts[name])
            moments = normalizer.shift[part].data_ptr(), normalizer.scale[part].data_ptr()
        return rows.data_ptr(), *moments, rows[0, 0].numel()

    def _states(self) -> float:
        """Adam's state of each parameter, made where it is missing; the steps taken so far."""
        state = self._optimizer.state
        for p in self._parameters:
            if not state[p]:
                state[p]["step"] = torch.zeros((), dtype=torch.float32)
                state[p]["exp_avg"], state[p]["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        self._networks.tensors(
            [
                (p.data_ptr(), state[p]["exp_avg"].data_ptr(), state[p]["exp_avg_sq"].data_ptr())
                for p in self._parameters
            ]
        )
        return float(state[self._parameters[0]]["step"])
