"""Writes the parts of an epoch in plain torch, without our own kernels, for the comparison."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metta_fast.algorithms.ppo.advantage import Inputs
from metta_fast.algorithms.ppo.advantage.on_tensors import advantage_on_tensors
from metta_fast.algorithms.ppo.learner import Learner
from metta_fast.algorithms.ppo.loss import ppo_loss
from metta_fast.algorithms.ppo.minibatch import Gather, Minibatch
from metta_fast.algorithms.ppo.ppo import PPO
from metta_fast.policy.cores import MinGRUCore
from metta_fast.policy.encoders import MLPEncoder
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.mingru.scan import reference
from metta_fast.policy.network import Network
from metta_fast.rollout.episode_stats import EpisodeStats
from metta_fast.rollout.reward_scale import RewardScale
from metta_fast.rollout.summary import Summary

AnyNetwork = TypeVar("AnyNetwork", bound=nn.Module)


class PlainMinGRU(nn.Module):
    """MinGRUCore with its recurrence in torch operators, one row after another."""

    def __init__(self, core: MinGRUCore) -> None:
        super().__init__()
        self.input = core.input

    def forward(self, x: Tensor, state: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        gates = self.input(x)
        y, last = reference(gates, x.to(gates.dtype), state[0], reset)
        return y.to(gates.dtype), last.unsqueeze(0)


def plain_policy(policy: AnyNetwork) -> AnyNetwork:
    """Copies the policy with its weights; the copy's first layer decodes its inputs into memory."""
    plain = copy.deepcopy(policy)
    for module in plain.modules():
        if isinstance(module, SparseLayer):
            module.triton = False
    if isinstance(plain.core, MinGRUCore):
        plain.core = PlainMinGRU(plain.core)
    return plain


def minibatch_loss(learner: Learner, policy: Network) -> Callable[[Tensor], Tensor]:
    """Returns a function from segments [B] to their loss: gather, policy, loss."""
    gather = Gather(learner.buffers, learner.device)
    gather._picks_bytes = None

    def loss(segments: Tensor) -> Tensor:
        batch = gather.minibatch(segments, gather.rows(segments))
        output = policy(batch.obs, batch.state, batch.reset)
        logprob, entropy = policy.head.logprob_entropy(output.params, batch.action)
        return ppo_loss(logprob, entropy, output.value, batch, learner.config, learner.gradients.clip).loss

    return loss


def tail_loss(learner: Learner, policy: Network) -> Callable[[Tensor, Minibatch], Tensor]:
    """Returns a function from the first layer's output [L, B, H] and the minibatch's rows to the loss."""
    encoder = policy.encoder
    assert isinstance(encoder, MLPEncoder)

    def loss(x: Tensor, batch: Minibatch) -> Tensor:
        hidden = F.relu(encoder.second(F.relu(x)))
        with torch.autocast(x.device.type, enabled=False):
            out = policy.heads(hidden.float())
        logprob, entropy = policy.head.logprob_entropy(out[..., :-1], batch.action)
        return ppo_loss(logprob, entropy, out[..., -1], batch, learner.config, learner.gradients.clip).loss

    return loss


def optimizer_step(learner: Learner, gradients: list[Tensor], *, fused: bool) -> Callable[[], None]:
    """Returns a function that clips to max_grad_norm and steps, on copies of the learner's weights."""
    weights = [p.detach().clone().requires_grad_() for p in learner.policy.parameters()]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient.clone()
    cuda = weights[0].device.type == "cuda"
    rate = torch.tensor(1e-6, device=weights[0].device) if cuda else 1e-6
    adam = torch.optim.Adam(
        weights, lr=rate, eps=learner.config.adam_epsilon, capturable=cuda, fused=fused, foreach=not fused
    )
    limit = learner.config.max_grad_norm or 1.0

    def step() -> None:
        nn.utils.clip_grad_norm_(weights, limit)
        adam.step()

    return step


def summary(algorithm: PPO) -> Callable[[], None]:
    """Returns the rollout's summary in torch operators, with sums of its own."""
    device = algorithm.device
    scale = None
    if algorithm.reward_scale is not None:
        scale = RewardScale(algorithm.buffers.num_agents, algorithm.config.trainer.gamma, device)
    found = Summary(
        algorithm.spec,
        algorithm.buffers,
        EpisodeStats(algorithm.spec, algorithm.buffers.num_agents, device),
        scale,
    )
    found._kernels = None
    return found.run


def advantage(algorithm: PPO) -> Callable[[], None]:
    """Returns GAE in torch operators."""
    b = algorithm.buffers
    inputs = Inputs.of(b, algorithm.config.trainer, algorithm.spec.has_final_obs)

    def work() -> None:
        advantage_on_tensors(inputs._replace(ratio=None), b.advantage, b.returns)

    return work
