"""Recurrent cores between a policy's encoder and its heads, with resets inside the sequence: minGRU and LSTM."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.policy.initial import orthogonal_linear
from metta_fast.policy.mingru.scan import mingru, reference

HORIZON = 32
"""The longest initial time constant of a minGRU unit, in rows: a row replaces σ(−ln τ) = 1 / (1 + τ) of its state."""
CLOSED = -3.0
"""Initial bias of minGRU's output gate: the state makes up a twentieth of the output."""


class MinGRUCore(nn.Module):
    """One minGRU layer (Feng et al. 2024, arXiv 2410.01201) with a highway around it (Srivastava et al. 2015).

    scan.py gives the formulas. The gates of all rows are one product, and the recurrence is linear: rows
    cost little more than in a feed-forward layer, on a GPU one kernel for all T. Running T rows equals T calls
    of one row with the state carried. States are float32; products follow autocast.

    The candidate is linear (the paper's first form; its positive one is for a scan of logarithms, which is not
    needed here): the state is then a mean of past candidates, so that it cannot grow. At first its features look
    back over 1 to 32 rows (Tallec & Ollivier 2018, arXiv 1804.11188), and the output is nearly the input: the
    policy begins as the feed-forward one. What was tried: docs/learning.md.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.state_shape = (1, size)
        self.input = nn.Linear(size, 3 * size)
        with torch.no_grad():
            for part in self.input.weight.split(size):
                nn.init.orthogonal_(part)
            update, output, candidate = self.input.bias.split(size)
            update.copy_(-torch.logspace(0, math.log2(HORIZON), size, base=2.0).log())
            output.fill_(CLOSED)
            candidate.zero_()

    def forward(self, x: Tensor, state: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, B, size], state [1, B, size], reset [T, B] bool → (y [T, B, size] in the products' dtype, state)."""
        gates = self.input(x)
        wide = torch.promote_types(gates.dtype, torch.float32)
        y, last, _ = mingru(gates, x.to(gates.dtype), state[0].to(wide), reset, torch.is_grad_enabled())
        return y, last.unsqueeze(0)

    def plain(self, x: Tensor, state: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the same with torch's own operators, which exporters support (metta_fast/export)."""
        y, last = reference(self.input(x), x, state[0], reset)
        return y, last.unsqueeze(0)


class LSTMCore(nn.Module):
    """One LSTM layer (Hochreiter & Schmidhuber 1997; forget gates start open, Gers et al. 2000).

    All rows' inputs are multiplied at once; the recurrence is a loop over T. Running T rows equals T calls of
    one row with the state carried. States and the cell's arithmetic are float32; products follow autocast.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.state_shape = (2, size)
        self.input = orthogonal_linear(size, 4 * size, 1.0)
        self.recurrent = orthogonal_linear(size, 4 * size, 1.0, bias=False)
        with torch.no_grad():
            self.input.bias[size : 2 * size] = 1.0

    def forward(self, x: Tensor, state: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, B, size], state [2, B, size] = (h, c), reset [T, B] bool → (h [T, B, size], state)."""
        gates = self.input(x)
        h, c = state.float().unbind(0)
        weight = self.recurrent.weight.to(gates.dtype)
        out, h, c = _Recurrence.apply(gates, weight, h, c, reset.unsqueeze(-1), torch.is_grad_enabled())
        return out, torch.stack([h, c])

    def plain(self, x: Tensor, state: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        """Computes the same with torch's own operators, which exporters support (metta_fast/export)."""
        h, c = state.unbind(0)
        out = []
        for row, keep in zip(self.input(x).unbind(0), (~reset).unsqueeze(-1).float().unbind(0)):
            i, f, o, g = (row + self.recurrent(h * keep)).chunk(4, -1)
            c = f.sigmoid() * (c * keep) + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(h)
        return torch.stack(out), torch.stack([h, c])


class _Recurrence(torch.autograd.Function):
    """Loops over T, with a gradient of its own: the weight's is then one product instead of T.

    Gates are in the order i, f, o (sigmoid), g (tanh): c' = f c + i g, h' = o tanh c'.
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, weight: Tensor, h: Tensor, c: Tensor, reset: Tensor, learning: bool
    ) -> Any:
        """gates [T, B, 4H] and weight [4H, H] in the products' dtype; h, c [B, H] float32; reset [T, B, 1].
        learning: save tensors for the backward pass."""
        size = h.shape[-1]
        weight_t = weight.t()
        hs, cs, acts, tanhs, out = [], [], [], [], []
        for row, restart in zip(gates.unbind(0), reset.unbind(0)):
            h, c = h.masked_fill(restart, 0.0), c.masked_fill(restart, 0.0)
            hs.append(h.to(weight.dtype))
            cs.append(c)
            total = torch.addmm(row, hs[-1], weight_t).float()
            act = torch.cat([total[:, : 3 * size].sigmoid(), total[:, 3 * size :].tanh()], -1)
            i, f, o, g = act.split(size, -1)
            c = torch.addcmul(f * c, i, g)
            tanhs.append(c.tanh())
            h = o * tanhs[-1]
            acts.append(act)
            out.append(h)
        if learning:
            ctx.save_for_backward(weight, reset, *map(torch.stack, (hs, cs, acts, tanhs)))
        return torch.stack(out), h, c.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        grad_out, dh, dc = grads
        weight, reset, hs, cs, acts, tanhs = ctx.saved_tensors
        i, f, o, g = acts.chunk(4, -1)
        # What each gate's gradient is per unit of dc (i, f, g) or dh (o), all rows at once.
        by_i, by_f, by_g = g * i * (1 - i), cs * f * (1 - f), i * (1 - g * g)
        by_o, through = tanhs * o * (1 - o), o * (1 - tanhs * tanhs)
        grad_gates: list[Tensor] = []
        for t in range(len(grad_out) - 1, -1, -1):
            dh = dh + grad_out[t]
            dc = torch.addcmul(dc, dh, through[t])
            row = torch.cat([dc * by_i[t], dc * by_f[t], dh * by_o[t], dc * by_g[t]], -1).to(weight.dtype)
            grad_gates.append(row)
            dh = (row @ weight).float().masked_fill(reset[t], 0.0)
            dc = (dc * f[t]).masked_fill(reset[t], 0.0)
        grad = torch.stack(grad_gates[::-1])
        return grad, grad.flatten(0, 1).t() @ hs.flatten(0, 1), dh, dc, None, None


CORES: dict[str, type[LSTMCore | MinGRUCore]] = {"lstm": LSTMCore, "mingru": MinGRUCore}
"""The cores by their names in policy.core."""
