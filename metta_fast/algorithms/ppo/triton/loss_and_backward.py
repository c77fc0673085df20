"""Computes a minibatch's loss and gradients from the first layer's output with three Triton kernels (loss_kernels.py).

    tail = Tail(policy, buffers, config, clip)    # if not_fused_loss(policy, config) is None
    batch = tail.gather(segments)                 # rows of the buffers, moments of their advantages
    result = tail(x, batch, rollout_value)        # x [R, H]: the first layer's output for batch.rows; minGRU's, if any
    result.loss.backward()

They replace about eighty kernels of torch and Inductor. Network and loss are those of network.py and loss.py under
autocast to bf16: products of bf16 numbers added in float32, each layer's output rounded to bf16, heads and loss in
float32. The forward pass computes the gradients as well. Rows of actions, advantages and so on are read directly from
the buffers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor, nn

from metta_fast.algorithms.ppo.loss_terms import STATS, Loss
from metta_fast.algorithms.ppo.triton.applies import columns
from metta_fast.algorithms.ppo.triton.loss_kernels import (
    STATISTICS,
    finish_kernel,
    gather_kernel,
    tail_kernel,
)
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import TrainerConfig
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.plan import Plan, plan_of

PROGRAMS = 256
"""Most programs of `tail_kernel`: one tile each for 32768 rows. Independent of the card, so that results are too."""
ROWS = 128
"""Rows per tile."""
GATHERED = 1024
"""Rows per program of `gather_kernel`."""
COLUMNS = 64
"""Columns per program of `finish_kernel`."""


class Rows(NamedTuple):
    """Holds a minibatch's rows, from `Tail.gather`."""

    rows: Tensor
    """[R] int64: t · num_agents + n, time-major."""
    moments: Tensor
    """[3, programs] float32: see gather_kernel."""
    segments: int
    """R / bptt_horizon."""


class Tail:
    """See the module's docstring.

    Args:
        policy, config: must have `not_fused_loss` (applies.py) return None. buffers: on the policy's device.
        clip: [] float32 on it: PPO's clip, read by each launch.
        scaled: the caller scales the loss.
    """

    def __init__(
        self,
        policy: nn.Module,
        buffers: Buffers,
        config: TrainerConfig,
        clip: Tensor,
        *,
        scaled: bool = False,
    ) -> None:
        plan = plan_of(policy)
        assert isinstance(plan, Plan), plan
        self.layers: list[nn.Linear] = (
            [plan.heads] if plan.actor.core is not None else [plan.actor.second, plan.heads]
        )
        """Layers computed here: all after the first layer, or after the core."""
        self._buffers, self._config, self._clip = buffers, config, clip
        self.scaled = scaled or config.gradient_accumulation > 1
        """True: the loss is scaled before its gradient is taken. False: its incoming gradient is 1 and is not read."""
        assert isinstance(plan.head, ActionHead)
        nvec, device = plan.head.nvec, buffers.device
        self.choices = heads, choices = columns(nvec)
        source, empty = torch.full((heads, choices), -1, dtype=torch.int32), torch.zeros(heads, choices)
        start = 0
        for head, count in enumerate(nvec):
            source[head, :count] = torch.arange(start, start + count, dtype=torch.int32)
            start += count
        source[-1, -1] = start
        empty[source < 0] = -torch.inf
        empty[len(nvec) :, 0] = 0
        self.source, self.empty = source.flatten().to(device), empty.flatten().to(device)

    def gather(self, segments: Tensor) -> Rows:
        """Returns the buffers' rows for segments [B] (int64, on the device)."""
        b, n = self._buffers, len(segments)
        count = n * b.bptt_horizon
        parts = triton.cdiv(count, GATHERED)
        rows = torch.empty(count, dtype=torch.int64, device=b.device)
        moments = torch.empty(3, parts, device=b.device)
        gather_kernel[(parts,)](
            segments, b.mask, b.advantage, rows, moments, count, n, b.num_agents, b.bptt_horizon, parts,
            GATHERED, num_warps=8,
        )  # fmt: skip
        return Rows(rows, moments, n)

    def __call__(self, x: Tensor, batch: Rows, value: Tensor, weight: Tensor | None = None) -> Loss:
        """Returns the loss, with gradients for x and the weights of `layers`. (Its `ratio` is empty.)

        Args:
            x: [R, H] bf16. value: [T+1, N] float32, the rollout's values. weight: [segments], of the advantages.
        """
        if weight is not None:
            weight = weight.to(x.device, torch.float32).contiguous()
        weights = [p for layer in self.layers for p in (layer.weight, layer.bias)]
        loss, stats = _Tail.apply(x, *weights, self, batch, value, weight)
        return Loss(loss, stats, stats.new_empty(0))

    def run(
        self, x: Tensor, layers: tuple[Tensor, ...], batch: Rows, value: Tensor, weight: Tensor | None
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Returns loss [], statistics [5] and the gradients of x and `layers`: weights and biases of the module's
        layers."""
        b, c = self._buffers, self._config
        (count, width), (heads, choices) = x.shape, self.choices
        x = x.contiguous()
        tiles = triton.cdiv(count, ROWS)
        per_program = triton.cdiv(tiles, PROGRAMS)
        programs = triton.cdiv(tiles, per_program)
        second = len(self.layers) == 2
        line = int(STATISTICS) + (width + 1) * heads * choices + (width * (width + 1) if second else 0)
        line = triton.cdiv(line, 32) * 32
        partials = torch.empty(programs, line, device=x.device)
        gradients = [torch.empty_like(tensor) for tensor in (x, *layers)]
        stats, loss = torch.empty(len(STATS), device=x.device), torch.empty((), device=x.device)
        split = x.dtype != torch.float32
        parts = batch.moments.shape[1]
        tail_kernel[(programs,)](
            x, batch.rows, x if weight is None else weight, batch.moments, b.mask, b.action, b.logprob, value,
            b.advantage, b.returns, *(layers if second else (x, x, *layers)), self.source, self.empty, gradients[0],
            partials, self._clip, count, batch.segments, parts, line, c.vf_clip_coef or 0.0, c.vf_coef, c.entropy_coef,
            H=width, SECOND=second, HEADS=b.action.shape[2], W=heads, P=choices, PARTS=triton.next_power_of_2(parts),
            NORMALIZE=c.normalize_advantage, CLIP_VALUE=c.vf_clip_coef is not None, WEIGHTED=weight is not None,
            SPLIT=split, HOW="ieee", TILES=per_program, B=ROWS, num_warps=8,
        )  # fmt: skip
        targets = gradients[1:] if second else (x, x, *gradients[1:])
        finish_kernel[(triton.cdiv(line, COLUMNS),)](
            partials, self.source, *targets, stats, loss, programs, line, c.vf_coef, c.entropy_coef,
            H=width, SECOND=second, C=heads * choices, PROGRAMS=triton.next_power_of_2(programs),
            BLOCK=COLUMNS, num_warps=8,
        )  # fmt: skip
        return loss, stats, gradients


class _Tail(torch.autograd.Function):
    """Keeps the gradients from the forward pass, and returns them once in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
        *layers, tail, batch, value, weight = given
        loss, stats, ctx.gradients = tail.run(x, tuple(layers), batch, value, weight)
        ctx.scaled = tail.scaled
        ctx.mark_non_differentiable(stats)
        ctx.set_materialize_grads(False)
        return loss, stats

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if ctx.scaled:
            gradients = [gradient * grad for gradient in gradients]
        return *gradients, None, None, None, None
