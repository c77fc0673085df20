"""The weight's gradient of a first layer over compact observations (gpu_cells.py), in Triton.

    cells, gradient of the output ─► for each split of the rows: sums for 128 inputs a program ─► sum over the splits

128 inputs are two kinds or two channels of half the window, or one channel of all of it. Each sum is made by one
program in the order of the rows: no atomics, so that a run repeats in bits. gpu_gradient.total_kernel adds the splits.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from metta_fast.policy.grid.triton.compact_kernels import ROW, decode_8
from metta_fast.policy.grid.triton.compact_lanes import is_kind, pairs, spread_8
from metta_fast.policy.grid.triton.layer_gradient import nth_kind
from metta_fast.policy.grid.triton.layer_kernels import _or


@triton.jit
def kind_8(eight, kind, dtype: tl.constexpr):
    """int64 […] of eight kinds → 1 where it is `kind`, […, 2, 2, 2]."""
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
    """int64 [rows, groups] of eight cells → [rows, 128] inputs: channels A and B, or kinds (A < 15), of 8 groups.
    A = B: one channel of 16 groups."""
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
    """Kinds, and where a channel needs them statuses and items, int64 [rows, groups]."""
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
    """Channels A and B, or kinds kind_a and kind_b (A < 15; 0: none), of 64 cells; A = B: of 128."""
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
    own,
    grad,
    partial,
    rows,
    width,
    n,
    N: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """What belongs to no cell, and the bias."""
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


@triton.jit
def cells_partial_kernel(
    cells, own, grad, seen, shown, partials, R, width, per_split, TILE: tl.constexpr, N: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """partials float32 [splits, ROWS, N]; shown int32 [splits]: the kinds for which the split has written sums.

    Programs: (16: pairs of kinds x halves of the window | 8: pairs of channels x halves | channel 21 | the rest) x
    splits x width. cells int64 [rows, 48], own [rows, 64], seen int32 [tiles of TILE rows]: cells_kernel's.
    """
    item = tl.program_id(0)
    split = tl.program_id(1)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    first = split * per_split
    end = tl.minimum(first + per_split, R)
    rows = end - first
    cells += first.to(tl.int64) * ROW
    grad += first.to(tl.int64) * width
    partial = partials + split.to(tl.int64) * ROWS * N
    half = item % 2
    if item < 16:
        present = 0
        for tile in tl.range(first // TILE, tl.cdiv(end, TILE), 128):
            t = tile + tl.arange(0, 128)
            present |= tl.reduce(tl.load(seen + t, mask=t < tl.cdiv(end, TILE), other=0), 0, _or)
        if item == 0:
            tl.store(shown + split, present)
        kind_a = nth_kind(present, item // 2 * 2)
        if kind_a > 0:
            kind_b = nth_kind(present, item // 2 * 2 + 1)
            sum_cells(
                cells, grad, partial, rows, width, n, half, kind_a, kind_b, N, BN, BK, 0, 0, STAGES
            )  # fmt: skip
    elif item < 18:
        sum_cells(cells, grad, partial, rows, width, n, half, 0, 0, N, BN, BK, 19, 22, STAGES)
    elif item < 20:
        sum_cells(cells, grad, partial, rows, width, n, half, 0, 0, N, BN, BK, 20, 23, STAGES)
    elif item < 22:
        sum_cells(cells, grad, partial, rows, width, n, half, 0, 0, N, BN, BK, 15, 16, STAGES)
    elif item < 24:
        sum_cells(cells, grad, partial, rows, width, n, half, 0, 0, N, BN, BK, 17, 18, STAGES)
    elif item == 24:
        sum_cells(cells, grad, partial, rows, width, n, half, 0, 0, N, BN, BK, 21, 21, STAGES)
    else:
        own += first.to(tl.int64) * 64
        sum_own_inputs(own, grad, partial, rows, width, n, N, BN, BK, STAGES)
