"""Computes minGRU's recurrence over T rows of B agents, as a torch operator: autograd and torch.compile know it.

    z, p, c: the gates' three parts, z and p through σ
    h = h₋₁ (zeroed where reset) + z (c − h₋₁)          the state
    y = x + p (h − x)                                    the output: the input skips the recurrence where p is 0

Neither gate reads h₋₁, so all gates come from one matrix product, and the rest is a linear recurrence, computed in
float32 whatever dtype the gates have. `reference` is these lines left to autograd. A C kernel computes float32 on
the CPU (scan.h), a Triton kernel runs on GPUs (triton_scan.py), and torch's operators do everything else: the gates
of all rows at once, then one multiply-add a row.

4096 rows of width 128 on one core of a loaded machine, forward | backward in ms: the C kernel 2.2 | 3.7, torch's
operators 8.3 | 16; the product that gives the gates 4.8.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from metta_fast.policy.mingru import _scan  # type: ignore[attr-defined]
from metta_fast.runtime.thread_share import share
from metta_fast.runtime.torch_operator import operator

GRAIN = 16
"""Fewest agents for which one more thread pays."""


def reference(gates: Tensor, x: Tensor, state: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the recurrence row by row; returns y [T, B, H] and the last state [B, H].

    gates [T, B, 3H], x [T, B, H], state [B, H], reset [T, B] bool.
    """
    h, out = state, []
    for row, skip, restart in zip(gates, x, reset.unsqueeze(-1)):
        z, p, c = row.chunk(3, -1)
        h = h * ~restart
        h = h + z.sigmoid() * (c - h)
        out.append(skip + p.sigmoid() * (h - skip))
    return torch.stack(out), h


@operator("mingru")
def mingru(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, learning: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `reference`, with gates and x in one dtype, y in that dtype too, state float32 (float64 with float64).

    The third result is [T, B, H] the states after each row, for the backward pass, if `learning`; else empty.
    """
    _check(gates, x, state, reset)
    if gates.device.type == "cpu" and gates.dtype == torch.float32:
        return _native(gates, x, state, reset, learning)
    return _rowwise(gates, x, state, reset, learning)


@operator("mingru_grad")
def mingru_grad(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, h: Tensor, grad: Tensor, grad_last: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the gradients of gates, x and state from those of y [T, B, H] and of the last state [B, H].

    h [T, B, H]: the states after each row.
    """
    if gates.device.type == "cpu" and gates.dtype == torch.float32:
        return _native_grad(gates, x, state, reset, h, grad, grad_last)
    return _rowwise_grad(gates, x, state, reset, h, grad, grad_last)


def _rowwise(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, learning: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `mingru` by torch's operators."""
    z, p, c = _activations(gates, state.dtype)
    b, a = z * c, (1 - z).masked_fill_(reset.unsqueeze(-1), 0.0)
    h = torch.empty_like(b)
    before = state
    for t in range(len(h)):
        before = torch.addcmul(b[t], a[t], before, out=h[t])
    y = torch.lerp(x.to(h.dtype), h, p).to(x.dtype)
    return y, h[-1].clone(), h.to(gates.dtype, copy=True) if learning else gates.new_empty(0)


def _rowwise_grad(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, h: Tensor, grad: Tensor, grad_last: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `mingru_grad` by torch's operators."""
    wide, restart = state.dtype, reset.unsqueeze(-1)
    z, p, c = _activations(gates, wide)
    a = (1 - z).masked_fill_(restart, 0.0)
    grad, x_wide, h = grad.to(wide), x.to(wide), h.to(wide)
    dh = grad * p
    if grad_last is not None:
        dh[-1] += grad_last
    for t in range(len(dh) - 2, -1, -1):
        dh[t].addcmul_(a[t + 1], dh[t + 1])
    before = torch.cat([state.unsqueeze(0), h[:-1]]).masked_fill_(restart, 0.0)
    by_z = dh * (c - before) * (z * (1 - z))
    by_p = grad * (h - x_wide) * (p * (1 - p))
    by_c = dh * z
    return (
        torch.cat([by_z, by_p, by_c], -1).to(gates.dtype),
        (grad * (1 - p)).to(x.dtype),
        a[0] * dh[0],
    )


def _native(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, learning: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `mingru` by the C kernel."""
    given = [tensor.contiguous() for tensor in (gates, x, state, reset)]
    y, last, h = torch.empty(x.shape), torch.empty(state.shape), torch.empty(x.shape if learning else 0)
    at = [tensor.data_ptr() for tensor in (*given, y, last, h)]
    share(lambda lo, hi: _scan.forward(*at, *x.shape, lo, hi), x.shape[1], GRAIN)
    return y, last, h


def _native_grad(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, h: Tensor, grad: Tensor, grad_last: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `mingru_grad` by the C kernel."""
    given = [tensor.contiguous() for tensor in (gates, x, state, reset, h, grad)]
    results = torch.empty(gates.shape), torch.empty(x.shape), torch.zeros(state.shape)
    if grad_last is not None:
        results[2].copy_(grad_last)
    at = [tensor.data_ptr() for tensor in (*given, *results)]
    share(lambda lo, hi: _scan.backward(*at, *x.shape, lo, hi), x.shape[1], GRAIN)
    return results


def _activations(gates: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Returns z, p and c, each [T, B, H]."""
    z, p, c = gates.to(dtype).chunk(3, -1)
    return z.sigmoid(), p.sigmoid(), c


def _check(gates: Tensor, x: Tensor, state: Tensor, reset: Tensor) -> None:
    """Refuses tensors that do not fit together: the kernels work on addresses."""
    rows, agents, size = x.shape
    fits = gates.shape == (rows, agents, 3 * size) and reset.shape == (rows, agents) and rows > 0
    wide = torch.promote_types(gates.dtype, torch.float32)
    kinds = gates.dtype == x.dtype and reset.dtype == torch.bool and state.dtype == wide
    if not fits or not kinds or state.shape != (agents, size):
        raise ValueError(
            f"gates {list(gates.shape)} {gates.dtype}, x {list(x.shape)} {x.dtype}, state {list(state.shape)} "
            f"{state.dtype}, reset {list(reset.shape)} {reset.dtype}: expected [T, B, 3H], [T, B, H] of one "
            f"dtype, [B, H] {wide}, [T, B] bool"
        )


@cache
def _triton() -> bool:
    return find_spec("triton") is not None


@mingru.register_kernel("cuda")
def _(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, learning: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if not _triton() or gates.dtype == torch.float64:
        return _rowwise(gates, x, state, reset, learning)
    from metta_fast.policy.mingru import triton_scan as gpu_scan

    _check(gates, x, state, reset)
    return gpu_scan.forward(gates, x, state, reset, learning)


@mingru_grad.register_kernel("cuda")
def _(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, h: Tensor, grad: Tensor, grad_last: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    if not _triton() or gates.dtype == torch.float64:
        return _rowwise_grad(gates, x, state, reset, h, grad, grad_last)
    from metta_fast.policy.mingru import triton_scan as gpu_scan

    return gpu_scan.backward(gates, x, state, reset, h, grad, grad_last)


@mingru.register_fake
def _(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, learning: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        x.new_empty(x.shape),
        state.new_empty(state.shape),
        gates.new_empty(x.shape if learning else 0),
    )


@mingru_grad.register_fake
def _(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, h: Tensor, grad: Tensor, grad_last: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    return gates.new_empty(gates.shape), x.new_empty(x.shape), state.new_empty(state.shape)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    gates, x, state, reset, _ = inputs
    ctx.save_for_backward(gates, x, state, reset, output[2])
    ctx.set_materialize_grads(False)


def _backward(ctx, grad, grad_last, _):  # type: ignore[no-untyped-def]
    gates, x, state, reset, h = ctx.saved_tensors
    if grad is None:
        grad = torch.zeros_like(x)
    return *mingru_grad(gates, x, state, reset, h, grad, grad_last), None, None


mingru.register_autograd(_backward, setup_context=_setup)
