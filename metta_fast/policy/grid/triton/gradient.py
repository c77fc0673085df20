"""Computes the weight's gradient of a first layer over a grid observation, in Triton.

    inputs, gradient of the output ─► for each split of the rows: sums for two channels a program ─► sum over the splits

The inputs are bytes (layer_gradient.py) or compact cells in order (compact_gradient.py); what is around their sums is
here. Each sum is made by one program in the order of the rows: no atomics, so that a run repeats in bits.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from metta_fast.policy.grid.triton.compact_gradient import sum_cells, sum_own_inputs
from metta_fast.policy.grid.triton.compact_kernels import ROW
from metta_fast.policy.grid.triton.decode import CELLS, COMPACT_CHANNELS, DENSE_CHANNELS, KINDS, PTX
from metta_fast.policy.grid.triton.layer_gradient import sum_own, sum_pair
from metta_fast.policy.grid.triton.layer_kernels import _or, channels_of, lowest

SPLITS = 16
"""Partial sums of the gradient: 17 programs each in the grid's own game, so that two fill a multiprocessor of 132."""


def _neighbours(channels: int) -> tuple[tuple[int, int], ...]:
    """Returns the channels from 15 on in pairs, the last with itself if it is alone."""
    return tuple((c, min(c + 1, channels - 1)) for c in range(KINDS.value, channels, 2))


COMPACT_PAIRS = tl.constexpr(_neighbours(COMPACT_CHANNELS.value))
"""Channels that a program sums together, where the inputs are compact bytes."""
DENSE_PAIRS = tl.constexpr(_neighbours(DENSE_CHANNELS.value))
CELLS_PAIRS = tl.constexpr(((19, 22), (20, 23), (15, 16), (17, 18), (21, 21)))
"""The first two pairs share their amounts; the last is one channel of the whole window."""


@triton.constexpr_function
def pairs_of(form):
    """Returns the pairs of channels of a form of the inputs: "compact", "dense" or "cells"."""
    if form == "cells":
        return CELLS_PAIRS.value
    return DENSE_PAIRS.value if form == "dense" else COMPACT_PAIRS.value


@triton.constexpr_function
def pair_count(form):
    """Returns the number of pairs."""
    return len(pairs_of(form))


@triton.constexpr_function
def channel_of(form, pair, place):
    """Returns a pair's first (place 0) or second channel."""
    return pairs_of(form)[pair][place]


@triton.constexpr_function
def own_item(form):
    """Returns the number of the program that sums the columns after the cells: the last."""
    return 16 + 2 * len(pairs_of(form)) - (form == "cells")


@triton.jit
def kinds_of_rows(seen, first, end, TILE: tl.constexpr, AT_ONCE: tl.constexpr):
    """Returns the kinds in rows first … end - 1, as bits. seen int32 [tiles]: the kinds of each tile of TILE rows."""
    present = 0
    for tile in tl.range(first // TILE, tl.cdiv(end, TILE), AT_ONCE):
        t = tile + tl.arange(0, AT_ONCE)
        present |= tl.reduce(tl.load(seen + t, mask=t < tl.cdiv(end, TILE), other=0), 0, _or)
    return present


@triton.jit
def nth_kind(present, number):
    """Returns the kind that has `number` others below it in `present`; 0: there is none."""
    for _ in tl.range(number):
        present &= present - 1
    return tl.maximum(lowest(present), 0)


@triton.jit
def sum_two(
    obs, stride, numbers, grad, partial, rows, width, n, half, kind_a, kind_b, N: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, A: tl.constexpr, B: tl.constexpr, FORM: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Sums channels A and B, or kinds kind_a and kind_b (A < 15), of half a window."""
    if FORM == "cells":
        sum_cells(obs, grad, partial, rows, width, n, half, kind_a, kind_b, N, BN, BK, A, B, STAGES)
    else:
        sum_pair(
            obs, stride, numbers, grad, partial, rows, width, n, half, kind_a, kind_b, N, BN, BK, A, B,
            FORM == "dense", PRECISION, STAGES, WIDE,
        )  # fmt: skip


@triton.jit
def partial_kernel(
    obs, stride, numbers, own, grad, seen, shown, partials, R, width, per_split, TILE: tl.constexpr, N: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, ROWS: tl.constexpr, FORM: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Computes partials float32 [splits, ROWS, N], and shown int32 [splits]: the kinds for which a split wrote sums.

    Programs: (16: pairs of kinds, for each half of the window | pairs of other channels, likewise; of cells the last
    pair is of the whole window | 1 for the rest) x splits x width.
    FORM "compact", "dense": obs uint8 with rows `stride` apart; numbers [R]: its rows, None: the first R.
    FORM "cells": obs int64 [rows, 48] and own [rows, 64], cells_kernel's.
    seen int32 [tiles]: the kinds in each tile of TILE rows, from the forward pass.
    """
    cells: tl.constexpr = FORM == "cells"
    item = tl.program_id(0)
    split = tl.program_id(1)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    first = split * per_split
    end = tl.minimum(first + per_split, R)
    rows = end - first
    if cells:
        obs += first.to(tl.int64) * ROW
    elif numbers is None:
        obs += first.to(tl.int64) * stride
    else:
        numbers += first
    grad += first.to(tl.int64) * width
    partial = partials + split.to(tl.int64) * ROWS * N
    half = item % 2
    if item < 16:
        present = kinds_of_rows(seen, first, end, TILE, 128 if cells else 64)
        if item == 0:
            tl.store(shown + split, present)
        kind_a = nth_kind(present, item // 2 * 2)
        if kind_a > 0:
            kind_b = nth_kind(present, item // 2 * 2 + 1)
            sum_two(
                obs, stride, numbers, grad, partial, rows, width, n, half, kind_a, kind_b, N, BN, BK, 0, 0,
                FORM, PRECISION, STAGES, WIDE,
            )  # fmt: skip
    for pair in tl.static_range(pair_count(FORM)):
        if item // 2 * 2 == 16 + 2 * pair and item < own_item(FORM):
            sum_two(
                obs, stride, numbers, grad, partial, rows, width, n, half, 0, 0, N, BN, BK, channel_of(FORM, pair, 0),
                channel_of(FORM, pair, 1), FORM, PRECISION, STAGES, WIDE,
            )  # fmt: skip
    if item == own_item(FORM):
        if cells:
            own += first.to(tl.int64) * 64
            sum_own_inputs(own, grad, partial, rows, width, n, N, BN, BK, STAGES)
        else:
            sum_own(
                obs, stride, numbers, grad, partial, rows, width, n, N, BN, BK, FORM == "dense", PRECISION, STAGES,
                WIDE,
            )  # fmt: skip


@triton.jit
def total_kernel(
    partials, shown, grad_weight, grad_bias, width, N: tl.constexpr, ROWS: tl.constexpr, BR: tl.constexpr,
    BN: tl.constexpr, DENSE: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Adds up grad_weight float32 [columns, width] and grad_bias [width] over the SPLITS splits, in their order."""
    channels: tl.constexpr = channels_of(DENSE)
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


def packed_rows(dense: bool) -> int:
    """Returns the rows of a packed weight: 128 for each channel, then 48 (compact) or 32 for what is in no cell."""
    return 32 * 128 + 32 if dense else 24 * 128 + 48


def two_at_once(dtype: torch.dtype) -> dict[str, int]:
    """Limits a thread to 128 registers, so that two programs of 8 warps fit on a multiprocessor.

    One decodes while the other multiplies.
    """
    return {"maxnreg": 128} if PTX.value and dtype != torch.float32 else {}


def gradient_of(
    obs: Tensor,
    grad: Tensor,
    seen: Tensor,
    columns: int,
    form: str,
    tile: int,
    *,
    numbers: Tensor | None = None,
    own: Tensor | None = None,
    precision: str = "ieee",
) -> tuple[Tensor, Tensor]:
    """Launches the kernels; returns the gradients of the weight, float32 [columns, width], and of the bias [width].

    Args:
        obs: the inputs in a form that partial_kernel knows, with `own` if it is "cells".
        grad: the output's gradient [R, width].
        seen: the kinds seen in each tile of `tile` rows, from the forward pass.
        numbers: which rows of obs, None: the first R.
    """
    grad = grad.contiguous()
    rows, width = grad.shape
    if not rows:
        return torch.zeros(columns, width, device=obs.device), torch.zeros(width, device=obs.device)
    per_split = triton.cdiv(triton.cdiv(rows, SPLITS), 512) * 512
    wide = (len(obs) if numbers is not None else per_split) * obs.stride(0) >= 2**31
    splits = triton.cdiv(rows, per_split)
    half = grad.dtype != torch.float32
    block = min(128 if half else 32, max(triton.next_power_of_2(width), 16))
    padded = triton.cdiv(width, block) * block
    dense = form == "dense"
    partials = torch.empty(splits, packed_rows(dense), padded, device=obs.device)
    shown = torch.empty(splits, dtype=torch.int32, device=obs.device)
    partial_kernel[(own_item(form) + 1, splits, padded // block)](
        obs, None if form == "cells" else obs.stride(0), numbers, own, grad, seen, shown, partials, rows, width,
        per_split, tile, padded, block, 64 if half else 32, packed_rows(dense), form, precision, 3, wide,
        num_warps=8, **two_at_once(grad.dtype),
    )  # fmt: skip
    grad_weight = torch.empty(columns, width, device=obs.device)
    grad_bias = torch.empty(width, device=obs.device)
    block_rows = 512 // block
    total_kernel[(triton.cdiv(columns + 1, block_rows), padded // block)](
        partials, shown, grad_weight, grad_bias, width, padded, packed_rows(dense), block_rows, block, dense, splits,
        num_warps=4,
    )  # fmt: skip
    return grad_weight, grad_bias
