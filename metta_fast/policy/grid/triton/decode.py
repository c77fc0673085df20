"""The grid's bytes as inputs of a first layer, in the registers of a Triton kernel (columns: grid_layout.py).

A window's columns are taken channel by channel: `compact_channel(kind, status, items, c)` and `dense_channel(kind,
byte, c)` give column c of every cell of a tile, whatever the tile's shape. `compact_own` and `dense_own` give the
columns after the cells as one tile [rows, 64] or [rows, 32].

Arguments are int32 tensors of byte values 0 … 255, results float32. Every byte is allowed. An empty cell (all bytes 0)
gives 0 in every channel, so that rows and cells past the end are loaded as 0.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl

CELLS = tl.constexpr(121)
CENTRE = tl.constexpr(60)
KINDS = tl.constexpr(15)
"""Channels 0 … 14 are one-hot: the cell's kind is channel + 1."""
COMPACT_BYTES = tl.constexpr(387)
COMPACT_CHANNELS = tl.constexpr(24)
COMPACT_OWN = tl.constexpr(64)
DENSE_BYTES = tl.constexpr(2904)
DENSE_FEATURES = tl.constexpr(24)
DENSE_CHANNELS = tl.constexpr(32)
DENSE_OWN = tl.constexpr(24)
PTX = tl.constexpr(torch.version.hip is None and not triton.knobs.runtime.interpret)
"""Compiled for NVIDIA: PTX instructions can be named."""


@triton.jit
def half_log(x):
    """log2(x) / 2 of a float32 ≥ 1; on NVIDIA by one instruction, right to 2^-22."""
    if PTX:
        log = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        log = tl.log2(x)
    return log * 0.5


@triton.jit
def amount(n):
    """log2(1 + n) / 2 of an amount 0 … 255."""
    return half_log((n + 1).to(tl.float32))


@triton.jit
def one_if(condition):
    """1.0 where true."""
    return tl.where(condition, 1.0, 0.0)


@triton.jit
def compact_channel(kind, status, items, c: tl.constexpr):
    """Column c (0 … 23) of compact cells whose three bytes are given. `status` and `items` are read from c = 15 on."""
    if c < 15:
        return one_if(kind == c + 1)
    agent = (kind == 1) & (status > 0)
    converter = (kind >= 3) & (kind <= 14)
    flags = status - 1
    if c == 15:
        return tl.where(agent & ((flags & 2) == 0), ((flags & 1) * 2 - 1).to(tl.float32), 0.0)
    elif c == 16:
        return tl.where(agent & ((flags & 2) != 0), ((flags & 1) * 2 - 1).to(tl.float32), 0.0)
    elif c == 17:
        return one_if(agent & ((flags & 4) != 0))
    elif c == 18:
        return tl.where(agent, ((flags >> 3) & 15).to(tl.float32) * (1.0 / 15.0), 0.0)
    elif c == 19:
        return tl.where(agent, amount(items & 15), 0.0)
    elif c == 20:
        return tl.where(agent, amount(items >> 4), 0.0)
    elif c == 21:
        return one_if(converter & (status > 0))
    elif c == 22:
        return tl.where(converter, amount(items & 15), 0.0)
    else:
        return tl.where(converter, amount(items >> 4), 0.0)


@triton.jit
def compact_single(own, rows, columns, mask):
    """The columns after the cells that one byte decides: 0 … 53 and 63 of the 64.

    own: pointer to byte 363 of row 0; rows: offset of each row's first byte, and its mask; columns: numbers 0 … 63.
    They broadcast to the tile: [R, 1] and [1, n], or [1, R] and [n, 1] for the transposed tile.
    """
    j = columns
    source = tl.where(j < 10, j, 0)
    source = tl.where((j >= 10) & (j < 14), 10, source)
    source = tl.where((j == 14) | (j == 15), 11, source)
    source = tl.where((j >= 16) & (j < 19), j - 4, source)
    source = tl.where((j >= 19) & (j < 28), 15, source)
    source = tl.where((j >= 28) & (j < 31), j - 12, source)
    source = tl.where((j >= 31) & (j < 39), 19, source)
    source = tl.where(j >= 39, 20, source)
    factor = tl.where((j == 17) | (j == 18) | (j == 28), 0.125, 0.1)
    factor = tl.where(j == 16, 1.0 / 15.0, factor)
    factor = tl.where(j == 30, 1.0 / 255.0, factor)
    wanted = tl.where(j < 14, j - 10, j - 19)
    wanted = tl.where((j >= 39) & (j < 54), j - 38, wanted)
    wanted = tl.where(j == 63, 0, wanted)
    equals = ((j >= 10) & (j < 14)) | ((j >= 19) & (j < 28)) | ((j >= 39) & (j < 54)) | (j == 63)
    bit = tl.minimum(tl.maximum(j - 31, 0), 7)
    byte = tl.load(own + rows + source, mask=mask, other=0).to(tl.int32)
    value = byte.to(tl.float32) * factor
    value = tl.where((j < 10) | (j == 29), amount(byte), value)
    value = tl.where(equals, one_if(byte == wanted), value)
    value = tl.where((j >= 31) & (j < 39), ((byte >> bit) & 1).to(tl.float32), value)
    value = tl.where(j == 14, one_if(byte > 0), value)
    return tl.where(mask, value, 0.0)


@triton.jit
def compact_own(own, rows, columns, mask):
    """The 64 columns after the cells; arguments as compact_single's."""
    value = compact_single(own, rows, columns, mask)
    kind = tl.load(own + rows + 20, mask=mask, other=0).to(tl.int32)
    status = tl.load(own + rows + 21, mask=mask, other=0).to(tl.int32)
    items = tl.load(own + rows + 22, mask=mask, other=0).to(tl.int32)
    for c in tl.static_range(15, 24):
        value = tl.where(columns == 39 + c, compact_channel(kind, status, items, c), value)
    return tl.where(mask, value, 0.0)


@triton.jit
def dense_byte(c: tl.constexpr):
    """Which byte of a dense cell channel c (15 … 31) is read from, beside the kind."""
    if c < 17:
        return 4
    elif c == 17:
        return 3
    elif c == 18:
        return 1
    elif c == 19:
        return 5
    elif c == 20:
        return 6
    elif c == 21:
        return 12
    else:
        return c - 8


@triton.jit
def dense_channel(kind, byte, c: tl.constexpr):
    """Column c (0 … 31) of dense cells; `byte` is number dense_byte(c) of the cell (not read for c < 15)."""
    if c < 15:
        return one_if(kind == c + 1)
    agent = kind == 1
    thing = (kind != 0) & (kind != 2)
    number = byte.to(tl.float32)
    if c == 15:
        return tl.where(agent & (byte < 2), number * 2.0 - 1.0, 0.0)
    elif c == 16:
        return tl.where(agent & (byte >= 2) & (byte < 4), number * 2.0 - 5.0, 0.0)
    elif c == 17:
        return tl.where(agent, number * 0.1, 0.0)
    elif c == 18:
        return tl.where(agent, number * (1.0 / 15.0), 0.0)
    elif c == 19:
        return tl.where(thing, number * 0.125, 0.0)
    elif c == 20:
        return tl.where(thing, number, 0.0)
    elif c == 21:
        return tl.where(agent, number * 0.125, 0.0)
    else:
        return tl.where(thing, amount(byte), 0.0)


@triton.jit
def dense_own(obs, rows, columns, mask):
    """The 24 columns after the cells, then 8 of zeros. As compact_own, but `obs` is byte 0 of row 0."""
    j = columns
    source = tl.where(j == 0, 8, 9)
    source = tl.where(j == 10, 10, source)
    source = tl.where(j == 11, 11, source)
    source = tl.where(j >= 12, 13, source)
    source = tl.where(j >= 20, 4, source)
    factor = tl.where(j == 0, 1.0 / 255.0, 0.125)
    wanted = tl.where(j < 10, j - 1, j - 20)
    equals = ((j >= 1) & (j < 10)) | (j >= 20)
    bit = tl.minimum(tl.maximum(j - 12, 0), 7)
    there = mask & (j < 24)
    byte = tl.load(obs + rows + CENTRE * DENSE_FEATURES + source, mask=there, other=0).to(tl.int32)
    value = byte.to(tl.float32) * factor
    value = tl.where(j == 11, amount(byte), value)
    value = tl.where(equals, one_if(byte == wanted), value)
    value = tl.where((j >= 12) & (j < 20), ((byte >> bit) & 1).to(tl.float32), value)
    return tl.where(there, value, 0.0)
