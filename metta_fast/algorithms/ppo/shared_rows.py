"""Gives each process its part of a minibatch that all processes of the run share: normalised advantages, share of rows.

    shared = SharedRows(buffers, config, group)
    shared.take(order)                    # one collective, for all minibatches of a pass
    shared.share[i]                       # multiplies this process's mean loss of minibatch i

A mean over the rows of all processes is the sum over processes of (share of the rows) · (mean over own rows). So the
losses stay as they are: gradients and statistics are multiplied by the share and summed. Advantages are normalised over
all processes' rows before the loss, which gets them in `buffers.advantage` and normalises no more.

Place in the flow: learner.py calls it at the start of each pass, or before each minibatch whose segments or advantages
are known only then.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from metta_fast.algorithms.ppo.loss_terms import EPSILON, LEAST_DEVIATION
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.distributed.group import Group


class SharedRows:
    """See the module's docstring.

    Attributes:
        buffers, config: those that the loss reads: the run's, with normalised advantages.
        share: [minibatches] float32: this process's share of each minibatch's unmasked rows.
    """

    def __init__(self, buffers: Buffers, config: TrainerConfig, group: Group) -> None:
        self._whole, self._group, self._normalizes = buffers, group, config.normalize_advantage
        self.buffers, self.config = buffers, config
        if config.normalize_advantage:
            self.buffers = dataclasses.replace(buffers, advantage=torch.zeros_like(buffers.advantage))
            self.config = dataclasses.replace(config, normalize_advantage=False)
        minibatches = config.batch_size // config.minibatch_size
        self.share = torch.ones(minibatches, device=buffers.device)
        self._time = torch.arange(buffers.bptt_horizon, device=buffers.device) * buffers.num_agents

    @torch.no_grad()
    def take(self, order: Tensor) -> None:
        """Normalises the advantages of minibatches and finds the shares.

        Args:
            order: [M, B] int64: the segments of M minibatches, on the buffers' device.
        """
        whole = self._whole
        b, n = whole.bptt_horizon, whole.num_agents
        first = order // n * (b * n) + order % n
        rows = (first.unsqueeze(2) + self._time).flatten()
        shape = len(order), -1
        mask = whole.mask[: whole.horizon].flatten().index_select(0, rows).view(shape)
        advantage = (
            whole.advantage.flatten().index_select(0, rows).view(shape).double().masked_fill(~mask, 0.0)
        )
        own = torch.stack([mask.sum(1).double(), advantage.sum(1), advantage.square().sum(1)])
        count, total, squares = self._group.sum_(own.clone())
        count = count.clamp(min=1)
        torch.div(own[0], count, out=own[0])
        self.share[: len(order)].copy_(own[0])
        if not self._normalizes:
            return
        mean = total / count
        deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
        scale = 1 / (torch.maximum(deviation, LEAST_DEVIATION * mean.abs()) + EPSILON)
        normal = ((advantage - mean.unsqueeze(1)) * scale.unsqueeze(1)).masked_fill(~mask, 0.0)
        target = self.buffers.advantage
        target.view(-1).index_copy_(0, rows, normal.to(target.dtype).flatten())
