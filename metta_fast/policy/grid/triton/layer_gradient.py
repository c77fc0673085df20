"""The weight's gradient of a first layer over a grid observation (gpu_layer.py), in Triton.

    obs, gradient of the output ─► for each split of the rows: sums for 2 channels x 64 cells ─► sum over the splits

The channels' inputs are decoded again, as [cells, rows], and multiplied with the gradient [rows, width]. Each sum is
made by one program in the order of the rows: no atomics, so that a run repeats in bits.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from metta_fast.policy.grid.triton.decode import CELLS, compact_channel, dense_byte, dense_channel, one_if
from metta_fast.policy.grid.triton.layer_kernels import _or, byte, lowest, offsets, own_inputs


@triton.jit
def bytes_of(obs, offset, cell, A: tl.constexpr, B: tl.constexpr, DENSE: tl.constexpr):
    """The bytes [cells, rows] that channels A and B are read from: kind, and two more. (Unused loads are dropped.)"""
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
    """float32 [cells, rows]: channels A and B; A < 15: the kinds kind_a and kind_b."""
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
    """Channels A and B (the same: only one), or kinds kind_a and kind_b (A < 15; 0: none), of 64 cells."""
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
    """What belongs to no cell, and the bias."""
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


@triton.jit
def nth_kind(present, number):
    """The kind that has `number` others below it in `present`; 0: there is none."""
    for _ in tl.range(number):
        present &= present - 1
    return tl.maximum(lowest(present), 0)


@triton.jit
def partial_kernel(
    obs, stride, numbers, grad, seen, shown, partials, R, width, per_split, TILE: tl.constexpr, N: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr, DENSE: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """partials float32 [splits, ROWS, N]; shown int32 [splits]: the kinds for which the split has written sums.

    Programs: (16: pairs of kinds | pairs of other channels, for each half of the window; 1 for the rest) x splits x
    width. numbers [R]: the rows of obs, None: the first R. seen int32 [tiles]: the kinds in each tile of TILE rows,
    from the forward pass.
    """
    item = tl.program_id(0)
    split = tl.program_id(1)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    first = split * per_split
    end = tl.minimum(first + per_split, R)
    rows = end - first
    if numbers is None:
        obs += first.to(tl.int64) * stride
    else:
        numbers += first
    grad += first.to(tl.int64) * width
    partial = partials + split.to(tl.int64) * ROWS * N
    last: tl.constexpr = 32 if DENSE else 24
    if item < 16:
        present = 0
        for tile in tl.range(first // TILE, tl.cdiv(end, TILE), 64):
            t = tile + tl.arange(0, 64)
            present |= tl.reduce(tl.load(seen + t, mask=t < tl.cdiv(end, TILE), other=0), 0, _or)
        if item == 0:
            tl.store(shown + split, present)
        kind_a = nth_kind(present, item // 2 * 2)
        if kind_a > 0:
            kind_b = nth_kind(present, item // 2 * 2 + 1)
            sum_pair(
                obs, stride, numbers, grad, partial, rows, width, n, item % 2, kind_a, kind_b, N, BN, BK, 0, 0,
                DENSE, PRECISION, STAGES, WIDE,
            )  # fmt: skip
    for c in tl.static_range(15, last, 2):
        if item // 2 * 2 == c + 1:
            sum_pair(
                obs, stride, numbers, grad, partial, rows, width, n, item % 2, 0, 0, N, BN, BK, c,
                c + 1 if c + 1 < last else c, DENSE, PRECISION, STAGES, WIDE,
            )  # fmt: skip
    if item == last + 2:
        sum_own(
            obs, stride, numbers, grad, partial, rows, width, n, N, BN, BK, DENSE, PRECISION, STAGES, WIDE
        )  # fmt: skip


@triton.jit
def total_kernel(
    partials, shown, grad_weight, grad_bias, width, N: tl.constexpr, ROWS: tl.constexpr, BR: tl.constexpr,
    BN: tl.constexpr, DENSE: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """grad_weight float32 [columns, width] and grad_bias [width]: sums over the SPLITS splits, in their order."""
    channels: tl.constexpr = 32 if DENSE else 24
    columns: tl.constexpr = CELLS * channels + (24 if DENSE else 64)
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    own = row - CELLS * channels
    source = tl.where(own < 0, row % channels * 128 + row // channels, channels * 128 + own)
    if not DENSE:
        faced = (own >= 39) & (own < 63)
        source = tl.where(faced, (own - 39) * 128 + CELLS, source)
        source = tl.where(own == 63, channels * 128 + 39, source)
    source = tl.where(row == columns, ROWS - 1, source)  # the bias
    source = tl.where(row > columns, 0, source)
    of_kind = source < 15 * 128
    total = tl.zeros([BR, BN], tl.float32)
    for split in tl.static_range(SPLITS):  # all are on their way before the first is there
        there = tl.load(shown + split) >> (source // 128 + 1) & 1
        mask = ((there > 0) | (of_kind == 0)) & (row <= columns)
        at = partials + split * (ROWS * N) + source[:, None] * N + n[None, :]
        total += tl.load(at, mask=mask[:, None] & (n < width)[None, :], other=0.0)
    inside = (n < width)[None, :]
    tl.store(grad_weight + row[:, None] * width + n[None, :], total, mask=(row < columns)[:, None] & inside)
    tl.store(grad_bias + row[:, None] * 0 + n[None, :], total, mask=(row == columns)[:, None] & inside)
