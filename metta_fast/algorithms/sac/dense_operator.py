"""Computes the critics' layers and their gradients as one operator of autograd, for the CPU.

    x [B, F] ─► relu(x W₁ + b₁) ─► … ─► h Wₙ + bₙ = Q [E, B, out]

Autograd would record ten operators for each layer and, in bf16, convert weights and activations at each. Here layers
stay in the products' dtype from end to end; the last one is float32, as in critics.py. Gradients of weights are
computed only where they are asked for: the actor's loss passes weights that need none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Dense(torch.autograd.Function):
    """Dense.apply(x, dtype, W₁, b₁, …, Wₙ, bₙ). W: [E, inputs, outputs], b: [E, 1, outputs], x: [B, inputs]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype, *weights: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            members = weights[0].shape[0]
            h = x.to(dtype).expand(members, *x.shape)
            inputs, used = [h], []
            for weight, bias in zip(weights[:-2:2], weights[1:-2:2]):
                used.append(weight.to(dtype))
                h = torch.baddbmm(bias.to(dtype), h, used[-1]).relu_()
                inputs.append(h)
            q = torch.baddbmm(weights[-1], h.float(), weights[-2])
        ctx.save_for_backward(weights[-2], *inputs, *used)
        ctx.layers, ctx.dtype = len(used), x.dtype
        return q

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        last, *saved = ctx.saved_tensors
        inputs, used = saved[: ctx.layers + 1], saved[ctx.layers + 1 :]
        wants = ctx.needs_input_grad[2:]
        found: list[Tensor | None] = [None] * len(wants)
        with torch.autocast(grad.device.type, enabled=False):
            if wants[-2]:
                found[-2] = inputs[-1].float().transpose(1, 2) @ grad
                found[-1] = grad.sum(1, keepdim=True)
            d = (grad @ last.transpose(1, 2)).to(inputs[-1].dtype)
            for i in reversed(range(ctx.layers)):
                d = torch.ops.aten.threshold_backward(d, inputs[i + 1], 0)
                if wants[2 * i]:
                    found[2 * i] = torch.bmm(inputs[i].transpose(1, 2), d).float()
                    found[2 * i + 1] = d.sum(1, keepdim=True, dtype=torch.float32)
                if i or ctx.needs_input_grad[0]:
                    d = torch.bmm(d, used[i].transpose(1, 2))
            dx = d.sum(0, dtype=torch.float32).to(ctx.dtype) if ctx.needs_input_grad[0] else None
        return dx, None, *found
