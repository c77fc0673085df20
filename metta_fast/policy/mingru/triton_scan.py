"""Runs minGRU's recurrence in Triton, forward and backward (scan.py defines what is computed).

A program takes WIDTH features of one agent's segment through all T rows, ROWS at a time: it loads the tile
[ROWS, WIDTH] of every input at once, so that many loads are on their way, applies the gates, and composes the
rows' linear maps by a scan along axis 0. With one warp a program that axis lies within each thread: the scan is
ROWS multiply-adds in registers. The state goes from tile to tile in float32. No two programs write the same
place: results are the same each time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDTH = 128
"""Most features of a program: four for each of a warp's threads, 8 bytes of bf16."""
ROWS, ROWS_BACKWARD = 8, 4
"""Rows of a tile: as many as fit in registers without spilling (96 and 158 of them on sm_90, bf16)."""


@triton.jit
def _after(a, b, a_next, b_next):  # type: ignore[no-untyped-def]
    """Composes h → a h + b with the later h → a_next h + b_next."""
    return a_next * a, a_next * b + b_next


@triton.jit
def _earlier(a, k, s, a_before, k_before, s_before):  # type: ignore[no-untyped-def]
    """Composes later rows (a, k, s) with the rows before them, backward in time.

    The gradient of a row's state is D = s + k E, where E = a D of the row after it comes back from there.
    """
    through = k_before * a
    return a_before, through * k, s_before + through * s


@triton.jit
def _place(SIZE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns this program's agent and features [1, WIDTH], which of them exist, and a tile's row numbers [ROWS, 1].

    The hint keeps a tile's rows within threads: without it bf16 is read in pieces of 8, which half a warp covers, and
    the scan would cross threads.
    """
    agent = tl.program_id(0).to(tl.int64)  # of millions of agents, places take more than 32 bits
    feature = tl.program_id(1) * WIDTH + tl.max_contiguous(tl.arange(0, WIDTH), WIDTH // 32)
    feature = feature[None, :]
    return agent, feature, feature < SIZE, tl.arange(0, ROWS)[:, None]


@triton.jit
def _load_inputs(gates, x, at, feature, ok, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Loads a tile's gates z, p, c and its x, each [ROWS, WIDTH]; `at` is where the rows of x begin."""
    gate = gates + 3 * at + feature
    z = tl.load(gate, ok, 0.0)
    p = tl.load(gate + SIZE, ok, 0.0)
    c = tl.load(gate + 2 * SIZE, ok, 0.0)
    return z, p, c, tl.load(x + at + feature, ok, 0.0)


@triton.jit
def _load_keep(reset, t, inside, agent, reset_row, reset_agent):  # type: ignore[no-untyped-def]
    """Loads whether the state is kept before each row of a tile, [ROWS, 1]."""
    return tl.load(reset + t.to(tl.int64) * reset_row + agent * reset_agent, inside, 0) == 0


@triton.jit
def _last_row(tile, row, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns the last row of a tile [ROWS, WIDTH], [1, WIDTH]."""
    return tl.sum(tl.where(row == ROWS - 1, tile, 0.0), 0)[None, :]


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    gates, x, state, reset, y, last, states, agents, reset_row, reset_agent, T: tl.constexpr, SIZE: tl.constexpr,
    LEARNING: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    agent, feature, there, row = _place(SIZE, ROWS, WIDTH)
    h = tl.load(state + agent * SIZE + feature, there, 0.0)
    for first in range(0, T, ROWS):
        t = first + row
        ok = (t < T) & there
        at = (t.to(tl.int64) * agents + agent) * SIZE
        z_in, p_in, c_in, x_in = _load_inputs(gates, x, at, feature, ok, SIZE)
        keep = _load_keep(reset, t, t < T, agent, reset_row, reset_agent)
        z = tl.sigmoid(z_in.to(tl.float32))
        a = tl.where(keep, 1.0 - z, 0.0)
        b = z * c_in.to(tl.float32)
        a = tl.where(t < T, a, 1.0)
        b = tl.where(t < T, b, 0.0)
        a, b = tl.associative_scan((a, b), 0, _after)
        h_all = a * h + b
        skip = x_in.to(tl.float32)
        out = skip + tl.sigmoid(p_in.to(tl.float32)) * (h_all - skip)
        tl.store(y + at + feature, out.to(y.dtype.element_ty), ok)
        if LEARNING:
            tl.store(states + at + feature, h_all.to(states.dtype.element_ty), ok)
        h = _last_row(h_all, row, ROWS)
    tl.store(last + agent * SIZE + feature, h, there)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    gates, x, state, reset, states, grad, grad_last, grad_gates, grad_x, grad_state, agents, reset_row, reset_agent,
    T: tl.constexpr, SIZE: tl.constexpr, LAST: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    agent, feature, there, row = _place(SIZE, ROWS, WIDTH)
    row_before = tl.cast(agents, tl.int64) * SIZE
    start = tl.load(state + agent * SIZE + feature, there, 0.0)
    if LAST:
        back = tl.load(grad_last + agent * SIZE + feature, there, 0.0)
    else:
        back = tl.zeros([1, WIDTH], tl.float32)
    for after in range(0, T, ROWS):
        t = T - 1 - after - row
        ok = (t >= 0) & there
        at = (t.to(tl.int64) * agents + agent) * SIZE
        z_in, p_in, c_in, x_in = _load_inputs(gates, x, at, feature, ok, SIZE)
        dy_in = tl.load(grad + at + feature, ok, 0.0)
        h_in = tl.load(states + at - row_before + feature, ok & (t > 0), 0.0)
        keep = _load_keep(reset, t, t >= 0, agent, reset_row, reset_agent)
        z = tl.sigmoid(z_in.to(tl.float32))
        p = tl.sigmoid(p_in.to(tl.float32))
        c = c_in.to(tl.float32)
        skip = x_in.to(tl.float32)
        dy = dy_in.to(tl.float32)
        before = tl.where(keep, tl.where(t > 0, h_in.to(tl.float32), start), 0.0)
        h = before + z * (c - before)
        a = tl.where(t >= 0, tl.where(keep, 1.0 - z, 0.0), 1.0)
        one = tl.full([ROWS, WIDTH], 1.0, tl.float32)
        _, k, s = tl.associative_scan((a, one, dy * p), 0, _earlier)
        dh = s + k * back
        back = _last_row(a * dh, row, ROWS)
        into = grad_gates + 3 * at + feature
        kind = grad_gates.dtype.element_ty
        tl.store(into, (dh * (c - before) * (z * (1.0 - z))).to(kind), ok)
        tl.store(into + SIZE, (dy * (h - skip) * (p * (1.0 - p))).to(kind), ok)
        tl.store(into + 2 * SIZE, (dh * z).to(kind), ok)
        tl.store(grad_x + at + feature, (dy * (1.0 - p)).to(grad_x.dtype.element_ty), ok)
    tl.store(grad_state + agent * SIZE + feature, back, there)


def forward(
    gates: Tensor, x: Tensor, state: Tensor, reset: Tensor, learning: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `scan.mingru` for float32, bf16 and fp16 gates."""
    gates, x, state = gates.contiguous(), x.contiguous(), state.contiguous()
    y, last = torch.empty_like(x), torch.empty_like(state)
    states = torch.empty_like(x) if learning else x.new_empty(0)
    _launch(_forward, ROWS, (gates, x, state, reset, y, last, states), LEARNING=learning)
    return y, last, states


def backward(
    gates: Tensor,
    x: Tensor,
    state: Tensor,
    reset: Tensor,
    states: Tensor,
    grad: Tensor,
    grad_last: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes `scan.mingru_grad`: the gradients of gates, x and state."""
    gates, x, state, grad = gates.contiguous(), x.contiguous(), state.contiguous(), grad.contiguous()
    last = state if grad_last is None else grad_last.contiguous()
    results = torch.empty_like(gates), torch.empty_like(x), torch.empty_like(state)
    tensors = gates, x, state, reset, states, grad, last, *results
    _launch(_backward, ROWS_BACKWARD, tensors, LAST=grad_last is not None)
    return results


def _launch(kernel: triton.JITFunction, most_rows: int, tensors: tuple[Tensor, ...], **flags: bool) -> None:
    """Runs a kernel over all agents and features, with tiles of at most `most_rows` rows.

    Args:
        tensors: the kernel's, which begin with gates, x [T, B, H], state and reset.
        flags: the kernel's other compile-time arguments.
    """
    _, x, _, reset, *_ = tensors
    rows, agents, size = x.shape
    width = min(max(triton.next_power_of_2(size), 32), WIDTH)
    tile = min(triton.next_power_of_2(rows), most_rows)
    kernel[(agents, triton.cdiv(size, width))](
        *tensors, agents, *reset.stride(), T=rows, SIZE=size, ROWS=tile, WIDTH=width, num_warps=1, **flags
    )
