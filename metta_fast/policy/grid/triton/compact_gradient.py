"""Sums a first layer's weight gradient over ordered compact cells (compact_kernels.py), for gradient.py.

A program multiplies 128 inputs with the gradient: two kinds or two channels of half the window, or one channel of all
of it.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from metta_fast.policy.grid.triton.compact_kernels import ROW, decode_8
from metta_fast.policy.grid.triton.compact_lanes import is_kind, pairs, spread_8


@triton.jit
def kind_8(eight, kind, dtype: tl.constexpr):
    """Compares int64 […] of eight kinds with `kind`: 1 where equal, […, 2, 2, 2]."""
    a, b, c, d = pairs(eight)
    return spread_8(
        is_kind(a, kind, dtype),
        is_kind(b, kind, dtype),
        is_kind(c, kind, dtype),
        is_kind(d, kind, dtype),
        dtype,
    )


@triton.jit
def inputs_of(kind, status, items, kind_a, kind_b, A: tl.constexpr, B: tl.constexpr, dtype: tl.constexpr):
    """Decodes int64 [rows, groups] of eight cells into [rows, 128]: channels A and B, or kinds (A < 15), of 8 groups.

    A = B: one channel of 16 groups.
    """
    if A == B and A >= 15:
        one = tl.permute(decode_8(kind, status, items, A, dtype), 0, 1, 4, 3, 2)
        return tl.reshape(one, kind.shape[0], 128)
    else:
        if A < 15:
            both = tl.join(kind_8(kind, kind_a, dtype), kind_8(kind, kind_b, dtype))
        else:
            both = tl.join(decode_8(kind, status, items, A, dtype), decode_8(kind, status, items, B, dtype))
        return tl.reshape(tl.permute(both, 0, 5, 1, 4, 3, 2), kind.shape[0], 128)


@triton.jit
def bytes_at(at, A: tl.constexpr):
    """Loads kinds, and where a channel needs them statuses and items, int64 [rows, groups]."""
    kind = tl.load(at)
    if A < 15:
        return kind, kind, kind
    else:
        return kind, tl.load(at + 16), tl.load(at + 32)


@triton.jit
def sum_cells(
    cells, grad, partial, rows, width, n, half, kind_a, kind_b, N: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, A: tl.constexpr, B: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sums channels A and B, or kinds kind_a and kind_b (A < 15; 0: none), of 64 cells; A = B: of 128."""
    dtype: tl.constexpr = grad.dtype.element_ty
    one: tl.constexpr = A == B and A >= 15
    k = tl.arange(0, BK)
    group = tl.arange(0, 16 if one else 8) + (0 if one else half * 8)
    at = cells + k[:, None] * ROW + group[None, :]
    kind, status, items = bytes_at(at, A)
    inputs = inputs_of(kind, status, items, kind_a, kind_b, A, B, dtype)
    total = tl.zeros([BN, 128], tl.float32)
    for row in tl.range(0, rows, BK, num_stages=STAGES):
        mask = (row + k < rows)[:, None] & (n < width)[None, :]
        g = tl.load(grad + (row + k)[:, None] * width + n[None, :], mask=mask, other=0.0)
        # Loaded before the product and decoded after it, for the next step: tensor cores hide the wait.
        kind, status, items = bytes_at(at + tl.where(row + BK < rows, row + BK, 0) * ROW, A)
        total = tl.dot(tl.trans(g), inputs, total)
        inputs = inputs_of(kind, status, items, kind_a, kind_b, A, B, dtype)
    i = tl.arange(0, 128)
    if one:
        at_row = A * 128 + i
        there = i >= 0
    else:
        first = (kind_a - 1) * 128 if A < 15 else A * 128
        second = (kind_b - 1) * 128 if A < 15 else B * 128
        at_row = tl.where(i < 64, first, second) + half * 64 + i % 64
        there = (i < 64) | (A >= 15) | (kind_b > 0)
    tl.store(
        partial + at_row[:, None] * N + n[None, :], tl.trans(total), mask=there[:, None] & (n >= 0)[None, :]
    )


@triton.jit
def sum_own_inputs(
    own, grad, partial, rows, width, n, N: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    """Sums the columns after the cells, and the bias."""
    k = tl.arange(0, BK)
    column = tl.arange(0, 64)
    total = tl.zeros([BN, 64], tl.float32)
    for row in tl.range(0, rows, BK, num_stages=STAGES):
        mask = (row + k < rows)[:, None]
        inside = mask & (n < width)[None, :]
        g = tl.load(grad + (row + k)[:, None] * width + n[None, :], mask=inside, other=0.0)
        inputs = tl.load(own + (row + k)[:, None] * 64 + column[None, :], mask=mask, other=0.0)
        total = tl.dot(tl.trans(g), inputs, total)
    at = partial + (24 * 128 + column)[:, None] * N + n[None, :]
    tl.store(at, tl.trans(total), mask=(column < 48)[:, None] & (n >= 0)[None, :])
