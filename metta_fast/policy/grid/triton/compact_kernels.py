"""Computes the first layer over compact observations with weights of 16 bits, in Triton.

    bytes ─► cells: planes of kinds, statuses, items; own inputs; kinds seen in each tile ─► forward, gradient

Rows have 387 bytes of three for each cell: of any alignment, cells across words. They are put in order once (rows
picked from a buffer on the way), 512 bytes for a row instead of 5936 of decoded inputs, and read from there with wide
loads by both passes. Inputs are decoded two at a time (compact_lanes.py), stored as a matrix in shared memory and
multiplied: 128 inputs a product, one kind's 128 cells, or 8 channels of 16 cells. Only kinds that the tile shows.

The rows of a packed weight are in the order of these products: 15 kinds x 128 cells; 8 parts of the window x 8
channels (all from 15 on but 21) x 16 cells; channel 21 x 128 cells; 64 of what belongs to no cell.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from metta_fast.policy.grid.triton.compact_lanes import (
    channel,
    eight_of,
    fresh,
    is_kind,
    pairs,
    planes,
    spread_8,
    words,
)
from metta_fast.policy.grid.triton.layer_kernels import _or, lowest, offsets, own_inputs

PACKED = tl.constexpr(15 * 128 + 9 * 128 + 64)
"""Rows of a packed weight."""
ROW = tl.constexpr(48)
"""A row of cells in int64: 16 of kinds, 16 of statuses, 16 of items."""


@triton.jit
def kinds_of(four):
    """Returns which kinds four bytes are, as bits 1 … 15.

    A byte that is no kind may be taken for one: it only costs time.
    """
    found = (1 << (four & 31)) | (1 << (four >> 8 & 31))
    return found | (1 << (four >> 16 & 31)) | (1 << (four >> 24 & 31))


@triton.jit
def cells_kernel(obs, stride, numbers, cells, own, seen, R, BM: tl.constexpr, WIDE: tl.constexpr):
    """Puts obs uint8 [R, 387], or its rows in `numbers` [R], in order: cells int64 [tiles * BM, 48], own inputs
    [tiles * BM, 64] in any dtype, seen int32 [tiles]: which kinds a tile shows, as bits.

    Cell 121 is the one that the agent faces, those after it are 0. Rows past the end are copies of the last: what is
    computed for them is not stored, or multiplied by 0.
    """
    tile = tl.program_id(0)
    rows = tl.arange(0, BM)
    first = tl.minimum(tile * BM, R - 1)
    if numbers is None:
        obs += first.to(tl.int64) * stride
    else:
        numbers += first
    offset = offsets(numbers, rows, R - first, stride, WIDE)
    group = tl.arange(0, 16)
    a, b, c, d, e, f = words(obs.to(tl.int64) + offset.to(tl.int64), group)
    kinds, statuses, items = planes(a, b, c)
    more_kinds, more_statuses, more_items = planes(d, e, f)
    found = kinds_of(kinds) | kinds_of(more_kinds)
    tl.store(seen + tile, tl.reduce(tl.reduce(found, 1, _or), 0, _or) & 0xFFFE)
    row = tile.to(tl.int64) * BM + rows
    at = cells + row[None, :] * ROW + group[:, None]
    tl.store(at, eight_of(kinds, more_kinds))
    tl.store(at + 16, eight_of(statuses, more_statuses))
    tl.store(at + 32, eight_of(items, more_items))
    column = tl.arange(0, 64)
    inputs = own_inputs(obs, offset, column, False)
    tl.store(own + row[:, None] * 64 + column[None, :], tl.trans(inputs.to(own.dtype.element_ty)))


@triton.jit
def kind_matrix(eight, kind, dtype: tl.constexpr):
    """Compares [rows, groups] of eight kinds each with `kind`: 1 where equal, [rows, 8 groups]."""
    a, b, c, d = pairs(eight)
    found = spread_8(
        is_kind(a, kind, dtype),
        is_kind(b, kind, dtype),
        is_kind(c, kind, dtype),
        is_kind(d, kind, dtype),
        dtype,
    )
    return tl.reshape(tl.permute(found, 0, 1, 4, 3, 2), found.shape[0], found.shape[1] * 8)


@triton.jit
def decode_8(kind, status, items, c: tl.constexpr, dtype: tl.constexpr):
    """Decodes channel c from int64 […] of eight cells' bytes, […, 2, 2, 2] (spread_8)."""
    k0, k1, k2, k3 = pairs(kind)
    s0, s1, s2, s3 = pairs(status)
    i0, i1, i2, i3 = pairs(items)
    return spread_8(
        channel(k0, s0, i0, c, dtype), channel(k1, s1, i1, c, dtype), channel(k2, s2, i2, c, dtype),
        channel(k3, s3, i3, c, dtype), dtype,
    )  # fmt: skip


@triton.jit
def part_matrix(kind, status, items, dtype: tl.constexpr):
    """Decodes [rows, 2] of eight cells each into [rows, 128]: 8 channels of 16 cells."""
    a = tl.join(decode_8(kind, status, items, 15, dtype), decode_8(kind, status, items, 19, dtype))
    b = tl.join(decode_8(kind, status, items, 16, dtype), decode_8(kind, status, items, 20, dtype))
    c = tl.join(decode_8(kind, status, items, 17, dtype), decode_8(kind, status, items, 22, dtype))
    d = tl.join(decode_8(kind, status, items, 18, dtype), decode_8(kind, status, items, 23, dtype))
    all = tl.join(tl.join(a, c), tl.join(b, d))  # […, bit 2, bit 1, bit 0 of the channel's place]
    return tl.reshape(tl.permute(all, 0, 5, 6, 7, 1, 4, 3, 2), kind.shape[0], 128)


@triton.jit
def times(weight, inputs, acc):
    """Adds the product [columns, rows] to acc: the inputs as the right factor, which Triton reads from shared memory.

    As the left one it would read computed inputs from registers, where there is no room for them.
    """
    return tl.dot(tl.trans(weight), tl.trans(inputs), acc)


@triton.jit
def cells_forward_kernel(
    cells, own, seen, packed, bias, out, R, width, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    SEEN: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Computes out [R, width] from what cells_kernel wrote.

    cells int64 [rows, 48], own [rows, 64], seen int32 [tiles of SEEN rows].
    """
    dtype: tl.constexpr = packed.dtype.element_ty
    tile = tl.program_id(0)
    rows = tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, 128)
    cells += tile.to(tl.int64) * BM * ROW
    weight = packed + k[:, None] * N + n[None, :]
    present = 0
    for i in tl.static_range(BM // SEEN):
        present |= tl.load(seen + tile * (BM // SEEN) + i)

    column = tl.arange(0, 64)
    inputs = tl.load(own + (tile.to(tl.int64) * BM + rows)[:, None] * 64 + column[None, :])
    acc = times(tl.load(packed + (24 * 128 + column)[:, None] * N + n[None, :]), inputs, None)

    eight = tl.load(cells + rows[:, None] * ROW + tl.arange(0, 16)[None, :])
    left = present
    for _ in tl.range(tl.sum((present >> tl.arange(0, 16)) & 1), num_stages=STAGES):
        kind = lowest(left)
        left &= left - 1
        acc = times(tl.load(weight + (kind - 1) * 128 * N), kind_matrix(fresh(eight, kind), kind, dtype), acc)

    at = cells + rows[:, None] * ROW + tl.arange(0, 2)[None, :]
    for part in tl.range(8, num_stages=STAGES):
        matrix = part_matrix(
            tl.load(at + part * 2), tl.load(at + part * 2 + 16), tl.load(at + part * 2 + 32), dtype
        )
        acc = times(tl.load(weight + (15 + part) * 128 * N), matrix, acc)

    status = tl.load(cells + rows[:, None] * ROW + 16 + tl.arange(0, 16)[None, :])
    last = decode_8(eight, status, status, 21, dtype)
    last = tl.reshape(tl.permute(last, 0, 1, 4, 3, 2), BM, 128)
    acc = tl.trans(times(tl.load(weight + 23 * 128 * N), last, acc))
    acc += tl.load(bias + n, mask=n < width, other=0.0)[None, :]
    inside = (rows < R - tile * BM)[:, None] & (n < width)[None, :]
    to = out + tile.to(tl.int64) * BM * width + rows[:, None] * width + n[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=inside)
