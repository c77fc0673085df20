"""Sums a first layer's weight gradient over rows of bytes (layer_kernels.py), for gradient.py.

The channels' inputs are decoded again, as [cells, rows], and multiplied with the gradient [rows, width].
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from metta_fast.policy.grid.triton.decode import compact_channel, dense_byte, dense_channel, one_if
from metta_fast.policy.grid.triton.layer_kernels import byte, offsets, own_inputs


@triton.jit
def bytes_of(obs, offset, cell, A: tl.constexpr, B: tl.constexpr, DENSE: tl.constexpr):
    """Loads the bytes [cells, rows] of channels A and B: kind, and two more. (Triton drops unused loads.)"""
    kind = byte(obs, offset, cell, 0, DENSE)
    if A < 15:
        return kind, kind, kind
    elif DENSE:
        return (
            kind,
            byte(obs, offset, cell, dense_byte(A), DENSE),
            byte(obs, offset, cell, dense_byte(B), DENSE),
        )
    else:
        return kind, byte(obs, offset, cell, 1, DENSE), byte(obs, offset, cell, 2, DENSE)


@triton.jit
def inputs_of(kind, x, y, kind_a, kind_b, A: tl.constexpr, B: tl.constexpr, DENSE: tl.constexpr):
    """Decodes channels A and B, float32 [cells, rows]; A < 15: the kinds kind_a and kind_b."""
    if A < 15:
        return one_if(kind == kind_a), one_if(kind == kind_b)
    elif DENSE:
        return dense_channel(kind, x, A), dense_channel(kind, y, B)
    else:
        return compact_channel(kind, x, y, A), compact_channel(kind, x, y, B)


@triton.jit
def sum_pair(
    obs, stride, numbers, grad, partial, rows, width, n, half, kind_a, kind_b, N: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, A: tl.constexpr, B: tl.constexpr, DENSE: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Sums channels A and B (the same: only one), or kinds kind_a and kind_b (A < 15; 0: none), of 64 cells."""
    both: tl.constexpr = A < 15 or A != B
    k = tl.arange(0, BK)
    cell = half * 64 + tl.arange(0, 64)
    offset = offsets(numbers, k, rows, stride, WIDE)
    kind, x, y = bytes_of(obs, offset, cell, A, B, DENSE)
    offset = offsets(numbers, BK + k, rows, stride, WIDE)
    a, b = inputs_of(kind, x, y, kind_a, kind_b, A, B, DENSE)
    a = a.to(grad.dtype.element_ty)
    b = b.to(grad.dtype.element_ty)
    sum_a = tl.zeros([64, BN], tl.float32)
    sum_b = tl.zeros([64, BN], tl.float32)
    for row in tl.range(0, rows, BK, num_stages=STAGES):
        mask = (row + k < rows)[:, None] & (n < width)[None, :]
        g = tl.load(grad + (row + k)[:, None] * width + n[None, :], mask=mask, other=0.0)
        # Loaded before the products and decoded after them, for the next step: tensor cores hide the wait.
        kind, x, y = bytes_of(obs, offset, cell, A, B, DENSE)
        offset = offsets(numbers, row + 2 * BK + k, rows, stride, WIDE)
        sum_a = tl.dot(a, g, sum_a, input_precision=PRECISION)
        if both:
            sum_b = tl.dot(b, g, sum_b, input_precision=PRECISION)
        a, b = inputs_of(kind, x, y, kind_a, kind_b, A, B, DENSE)
        a = a.to(grad.dtype.element_ty)
        b = b.to(grad.dtype.element_ty)
    row_a = A * 128
    row_b = B * 128
    if A < 15:
        row_a = (kind_a - 1) * 128
        row_b = (kind_b - 1) * 128
    tl.store(partial + (row_a + cell)[:, None] * N + n[None, :], sum_a)
    if both:
        there = (cell >= 0)[:, None] & ((A >= 15) | (kind_b > 0))
        tl.store(partial + (row_b + cell)[:, None] * N + n[None, :], sum_b, mask=there)


@triton.jit
def sum_own(
    obs, stride, numbers, grad, partial, rows, width, n, N: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    DENSE: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Sums the columns after the cells, and the bias."""
    k = tl.arange(0, BK)
    column = tl.arange(0, 64)
    total = tl.zeros([64, BN], tl.float32)
    offset = offsets(numbers, k, rows, stride, WIDE)
    a = own_inputs(obs, offset, column, DENSE).to(grad.dtype.element_ty)
    offset = offsets(numbers, BK + k, rows, stride, WIDE)
    for row in tl.range(0, rows, BK, num_stages=STAGES):
        mask = (row + k < rows)[:, None] & (n < width)[None, :]
        g = tl.load(grad + (row + k)[:, None] * width + n[None, :], mask=mask, other=0.0)
        total = tl.dot(a, g, total, input_precision=PRECISION)
        a = own_inputs(obs, offset, column, DENSE).to(grad.dtype.element_ty)
        offset = offsets(numbers, row + 2 * BK + k, rows, stride, WIDE)
    channels: tl.constexpr = 32 if DENSE else 24
    own: tl.constexpr = 32 if DENSE else 48
    at = partial + (channels * 128 + column)[:, None] * N + n[None, :]
    tl.store(at, total, mask=(column < own)[:, None] & (n >= 0)[None, :])
