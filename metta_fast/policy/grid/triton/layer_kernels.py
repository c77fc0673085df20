"""Computes the first layer over a grid observation in Triton: the decoded inputs never leave a kernel's registers.

A packed weight has 128 rows for each channel of a cell: 121 cells, for compact observations the faced cell, and rows
of zeros; then the rows of what belongs to no cell. So for one channel the inputs of a tile of rows are a matrix [rows,
cells] of one formula (decode.py), and tensor cores multiply it with that channel's weights. A kind of thing that
no row of the tile shows costs nothing. gradient.py is the backward pass.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from metta_fast.policy.grid.triton.decode import (
    CELLS,
    COMPACT_CHANNELS,
    DENSE_CHANNELS,
    DENSE_FEATURES,
    KINDS,
    PTX,
    compact_channel,
    compact_single,
    dense_byte,
    dense_channel,
    dense_own,
    one_if,
)


@triton.constexpr_function
def channels_of(dense):
    """Returns the number of a cell's channels."""
    return DENSE_CHANNELS.value if dense else COMPACT_CHANNELS.value


@triton.jit
def source_row(row, DENSE: tl.constexpr, PARTS: tl.constexpr):
    """Returns the weight's row that a packed row is copied from, -1: none. The bias has none.

    PARTS: rows are in the order of compact_kernels.py.
    """
    channels: tl.constexpr = channels_of(DENSE)
    channel = row // 128
    cell = row % 128
    if PARTS:
        rest = row - KINDS * 128
        part, eighth = rest // 128, rest // 16 % 8
        of_part = tl.where(part < 8, eighth + tl.where(eighth < 6, 15, 16), 21)
        channel = tl.where(rest < 0, channel, of_part)
        cell = tl.where((rest >= 0) & (part < 8), part * 16 + rest % 16, cell)
    own = row - channels * 128
    source = tl.where(cell < CELLS, cell * channels + channel, -1)
    if DENSE:
        own = tl.where(own < 24, own, -1)
    else:
        source = tl.where(cell == CELLS, CELLS * channels + 39 + channel, source)  # the faced cell
        own = tl.where(own == 39, 63, tl.where(own < 39, own, -1))
    return tl.where(row < channels * 128, source, tl.where(own < 0, -1, CELLS * channels + own))


@triton.jit
def pack_kernel(
    weight, packed, width, N: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DENSE: tl.constexpr,
    PARTS: tl.constexpr = False,
):  # fmt: skip
    """Packs a weight float32 [columns, width] into `packed` [rows, N], any float dtype."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    source = source_row(row, DENSE, PARTS)
    mask = (source >= 0)[:, None] & (n < width)[None, :]
    values = tl.load(weight + source[:, None] * width + n[None, :], mask=mask, other=0.0)
    tl.store(packed + row[:, None] * N + n[None, :], values.to(packed.dtype.element_ty))


@triton.jit
def byte(obs, offset, cell, number, DENSE: tl.constexpr):
    """Loads byte `number` of cells, int32 [cells, rows]. A cell past the last gives the last's.

    Lanes along a row's cells touch one cache line; with rows first Triton would lay them along rows and touch 32.
    """
    if DENSE:
        at = tl.minimum(cell, CELLS - 1) * DENSE_FEATURES + number
    else:
        at = tl.where(cell < CELLS, cell * 3, 3 * CELLS + 20) + number
    return tl.load(obs + at[:, None] + offset[None, :]).to(tl.int32)


@triton.jit
def offsets(numbers, i, count, stride, WIDE: tl.constexpr):
    """Returns where the observations of rows i (numbers[i] if given) begin. Past the last it is the last's."""
    i = tl.minimum(i, count - 1)
    if numbers is not None:
        i = tl.load(numbers + i)
    return i.to(tl.int64 if WIDE else tl.int32) * stride


@triton.jit
def own_inputs(obs, offset, column, DENSE: tl.constexpr):
    """Decodes the inputs of the packed rows after the channels', float32 [columns, rows]; the last is 1 (the bias)."""
    if DENSE:
        a = dense_own(obs, offset[None, :], column[:, None], (column < 24)[:, None])
    else:
        number = tl.where(column == 39, 63, column)[:, None]
        a = compact_single(obs + 3 * CELLS, offset[None, :], number, (column < 40)[:, None])
    return tl.where((column == (31 if DENSE else 47))[:, None], 1.0, a)


@triton.jit
def lowest(bits):
    """Returns the number of the lowest bit that is set."""
    return ((bits & -bits).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127


@triton.jit
def _or(a, b):
    return a | b


@triton.jit
def _bit(kind):
    return tl.where((kind > 0) & (kind < 16), 1 << (kind & 15), 0)


@triton.jit
def pinned(x):
    """Keeps x in a register from here on: the compiler would keep the bytes from which it was made instead."""
    if PTX:
        x = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.int32, is_pure=False, pack=1)
    return x


@triton.jit
def _four(obs, offset, cell, DENSE: tl.constexpr):
    """Loads the kinds of cells 32 apart, int32 [cells, rows], a byte each."""
    packed = byte(obs, offset, cell, 0, DENSE)
    for quarter in tl.static_range(1, 4):
        packed |= byte(obs, offset, cell + 32 * quarter, 0, DENSE) << (8 * quarter)
    return pinned(packed)


@triton.jit
def window_kinds(obs, offset, BM: tl.constexpr, DENSE: tl.constexpr):
    """Loads the kinds of the window, int32 [BM, 32], in byte q those of cells 32 q …; and which there are, as bits.

    A thread loads 8 cells that lie side by side, so that it can store 8 inputs at once.
    """
    eighth = 8 * tl.arange(0, 4)
    a = tl.join(_four(obs, offset, eighth, DENSE), _four(obs, offset, eighth + 4, DENSE))
    b = tl.join(_four(obs, offset, eighth + 1, DENSE), _four(obs, offset, eighth + 5, DENSE))
    c = tl.join(_four(obs, offset, eighth + 2, DENSE), _four(obs, offset, eighth + 6, DENSE))
    d = tl.join(_four(obs, offset, eighth + 3, DENSE), _four(obs, offset, eighth + 7, DENSE))
    packed = tl.join(tl.join(a, c), tl.join(b, d))  # [4, BM, 2, 2, 2]
    packed = tl.reshape(tl.permute(packed, 1, 0, 2, 3, 4), BM, 32)
    found = (
        _bit(packed & 255)
        | _bit((packed >> 8) & 255)
        | _bit((packed >> 16) & 255)
        | _bit((packed >> 24) & 255)
    )
    return packed, tl.reduce(tl.reduce(found, 1, _or), 0, _or)


@triton.jit
def add_kinds(acc, kinds, present, weight, n, N: tl.constexpr, PRECISION: tl.constexpr):
    """Adds the products of the kinds in `present` to acc, 32 cells at a time."""
    count = tl.sum((present >> tl.arange(0, 16)) & 1)
    rows = weight + tl.arange(0, 32)[:, None] * N + n[None, :]
    left = present
    kind = lowest(left)
    shift = 0
    # Decoded one step ahead and carried into the next: tensor cores take a carried tile from shared memory.
    a = one_if((kinds & 255) == kind).to(weight.dtype.element_ty)
    for _ in tl.range(4 * count, num_stages=3):
        acc = tl.dot(a, tl.load(rows + ((kind - 1) * 128 + 4 * shift) * N), acc, input_precision=PRECISION)
        left &= left - 1
        shift = tl.where(left == 0, shift + 8, shift)
        left = tl.where(left == 0, present, left)
        kind = lowest(left)
        a = one_if(((kinds >> shift) & 255) == kind).to(weight.dtype.element_ty)
    return acc


@triton.jit
def add_compact(acc, kind, status, items, rows, c: tl.constexpr, N: tl.constexpr, PRECISION: tl.constexpr):
    """Adds the product of channel c of 16 cells to acc."""
    a = compact_channel(kind, status, items, c).to(rows.dtype.element_ty)
    return tl.dot(a, tl.load(rows + c * 128 * N), acc, input_precision=PRECISION)


@triton.jit
def add_channels(
    acc, obs, offset, weight, n, N: tl.constexpr, DENSE: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Adds the products of the channels from 15 on to acc.

    16 cells are one step of the tensor cores, so that a channel's tile can be decoded in the registers from which it
    is multiplied.
    """
    for part in tl.range(8, num_stages=STAGES):
        cell = part * 16 + tl.arange(0, 16)
        rows = weight + cell[:, None] * N + n[None, :]
        kind = tl.trans(byte(obs, offset, cell, 0, DENSE))
        if DENSE:
            for c in tl.static_range(15, 32):
                number = tl.trans(byte(obs, offset, cell, dense_byte(c), DENSE))
                a = dense_channel(kind, number, c).to(weight.dtype.element_ty)
                acc = tl.dot(a, tl.load(rows + c * 128 * N), acc, input_precision=PRECISION)
        else:
            status = tl.trans(byte(obs, offset, cell, 1, DENSE))
            items = tl.trans(byte(obs, offset, cell, 2, DENSE))
            for c in tl.static_range(15, 19):
                acc = add_compact(acc, kind, status, items, rows, c, N, PRECISION)
            acc = add_compact(acc, kind, status, items, rows, 21, N, PRECISION)
            for c in tl.static_range(19, 21):  # pairs that are the same amounts
                acc = add_compact(acc, kind, status, items, rows, c, N, PRECISION)
                acc = add_compact(acc, kind, status, items, rows, c + 3, N, PRECISION)
    return acc


@triton.jit
def own_product(obs, offset, weight, n, N: tl.constexpr, DENSE: tl.constexpr, PRECISION: tl.constexpr):
    """Returns the product of the columns after the cells."""
    column = tl.arange(0, 16)
    rows = weight + ((32 if DENSE else 24) * 128 + column)[:, None] * N + n[None, :]
    a = tl.trans(own_inputs(obs, offset, column, DENSE)).to(weight.dtype.element_ty)
    acc = tl.dot(a, tl.load(rows), input_precision=PRECISION)
    for part in tl.static_range(1, 2 if DENSE else 3):
        a = tl.trans(own_inputs(obs, offset, part * 16 + column, DENSE)).to(weight.dtype.element_ty)
        acc = tl.dot(a, tl.load(rows + part * 16 * N), acc, input_precision=PRECISION)
    return acc


@triton.jit
def first_layer(
    obs, offset, weight, n, N: tl.constexpr, DENSE: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Returns decode(rows) @ weight, float32 [rows, columns], and the kinds that the rows show (bits).

    obs: byte 0 of the first row; offset: int32 or int64 [rows] of each row's byte 0;
    weight: packed [channels * 128 + own, N]; n: [columns], numbers of its columns.
    """
    kinds, present = window_kinds(obs, offset, offset.shape[0], DENSE)
    acc = own_product(obs, offset, weight, n, N, DENSE, PRECISION)
    acc = add_kinds(acc, kinds, present, weight, n, N, PRECISION)
    return add_channels(acc, obs, offset, weight, n, N, DENSE, PRECISION, STAGES), present


@triton.jit
def forward_kernel(
    obs, stride, numbers, weight, bias, out, seen, R, width, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    DENSE: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Computes out [R, width] of rows 0 … of obs, or of the rows in `numbers` [R];
    seen int32 [tiles]: which kinds each tile of BM rows shows, as bits."""
    tile = tl.program_id(0)
    rows = tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = rows < R - tile * BM
    if numbers is None:
        obs += tile.to(tl.int64) * BM * stride
    else:
        numbers += tile * BM
    # Rows past the end are not stored.
    offset = offsets(numbers, rows, R - tile * BM, stride, WIDE)
    out += tile.to(tl.int64) * BM * width
    acc, present = first_layer(obs, offset, weight, n, N, DENSE, PRECISION, STAGES)
    acc += tl.load(bias + n, mask=n < width, other=0.0)[None, :]
    at = out + rows[:, None] * width + n[None, :]
    tl.store(at, acc.to(out.dtype.element_ty), mask=inside[:, None] & (n < width)[None, :])
    if tl.program_id(1) == 0:
        tl.store(seen + tile, present)


@triton.jit
def tokens_kernel(tokens, stride, numbers, dense, COUNT: tl.constexpr):
    """Puts tokens uint8 [rows, COUNT * 3] back into dense uint8 [R, 2904]: a program for each row, or for each number.

    Where tokens say the same thing the last counts: 32 are written at once, of equal places only the last.
    """
    row = tl.program_id(0).to(tl.int64)
    if numbers is None:
        tokens += row * stride
    else:
        tokens += tl.load(numbers + row).to(tl.int64) * stride
    dense += row * (CELLS * DENSE_FEATURES)
    for part in tl.range(0, CELLS * DENSE_FEATURES, 1024):
        at = part + tl.arange(0, 1024)
        tl.store(dense + at, tl.zeros([1024], tl.uint8), mask=at < CELLS * DENSE_FEATURES)
    i = tl.arange(0, 32)
    for part in tl.range(0, COUNT, 32):
        there = part + i < COUNT
        at = tokens + (part + i) * 3
        location = tl.load(at, mask=there, other=255).to(tl.int32)
        feature = tl.load(at + 1, mask=there, other=255).to(tl.int32)
        value = tl.load(at + 2, mask=there, other=0).to(tl.int32)
        kept = ((location >> 4) < 11) & ((location & 15) < 11) & (feature < DENSE_FEATURES)
        place = ((location >> 4) * 11 + (location & 15)) * DENSE_FEATURES + feature
        place = tl.where(kept, place, -1)
        later = (place[:, None] == place[None, :]) & (i[None, :] > i[:, None])
        last = tl.max(tl.where(later, 1, 0), 1) == 0
        tl.debug_barrier()
        tl.store(dense + place, (value + tl.where(feature == 0, 1, 0)).to(tl.uint8), mask=kept & last)
