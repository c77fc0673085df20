"""Decodes the grid's bytes into inputs of a first layer in the registers of a Triton kernel (columns: ../layout.py).

A window's columns are decoded channel by channel: `compact_channel(kind, status, items, c)` and `dense_channel(kind,
byte, c)` give column c of every cell of a tile, whatever the tile's shape. From column 15 on they are generated from
layout.py's tables. `compact_single` and `dense_own` decode the columns after the cells as one tile [rows, 64] or
[rows, 32].

Arguments are int32 tensors of byte values 0 … 255, results float32. Every byte is allowed. An empty cell (all bytes 0)
gives 0 in every channel, so that rows and cells past the end are loaded as 0.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl

from metta_fast.policy.grid import layout

CELLS = tl.constexpr(layout.CELLS)
CENTRE = tl.constexpr(layout.CENTRE)
KINDS = tl.constexpr(layout.KINDS)
"""Channels 0 … 14 are one-hot: the cell's kind is channel + 1."""
COMPACT_TABLE = tl.constexpr(layout.COMPACT_CELL)
"""Channels from 15 on. (Plain tuples: a launch compares them with what was compiled, by their addresses.)"""
COMPACT_BYTES = tl.constexpr(layout.COMPACT_BYTES)
COMPACT_CHANNELS = tl.constexpr(layout.KINDS + len(layout.COMPACT_CELL))
DENSE_TABLE = tl.constexpr(layout.DENSE_CELL)
DENSE_BYTES = tl.constexpr(layout.DENSE_BYTES)
DENSE_FEATURES = tl.constexpr(layout.DENSE_FEATURES)
DENSE_CHANNELS = tl.constexpr(layout.KINDS + len(layout.DENSE_CELL))
PTX = tl.constexpr(torch.version.hip is None and not triton.knobs.runtime.interpret)
"""Compiled for NVIDIA: PTX instructions can be named."""


@triton.jit
def half_log(x):
    """Returns log2(x) / 2 of a float32 ≥ 1; on NVIDIA by one instruction, exact to 2^-22."""
    if PTX:
        log = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        log = tl.log2(x)
    return log * 0.5


@triton.jit
def amount(n):
    """Returns log2(1 + n) / 2 of an amount 0 … 255."""
    return half_log((n + 1).to(tl.float32))


@triton.jit
def one_if(condition):
    """Returns 1.0 where true, else 0.0."""
    return tl.where(condition, 1.0, 0.0)


@triton.constexpr_function
def channel_entry(c, dense, field):
    """Returns a field of channel c ≥ 15: 0 who, 1 how, 2 divisor, 3 byte, 4 less, 5 shift, 6 bits."""
    table = DENSE_TABLE if dense else COMPACT_TABLE
    return table.value[c - KINDS.value][field]


@triton.jit
def described(byte, here, c: tl.constexpr, DENSE: tl.constexpr):
    """Decodes channel c ≥ 15 as its table says: from its byte (less what the table subtracts), 0 where not `here`."""
    how: tl.constexpr = channel_entry(c, DENSE, 1)
    shift: tl.constexpr = channel_entry(c, DENSE, 5)
    bits: tl.constexpr = channel_entry(c, DENSE, 6)
    number = byte
    if shift > 0:
        number = number >> shift
    if shift + bits < 8:
        number = number & ((1 << bits) - 1)
    if how == "some":
        return one_if(here & (number != 0))
    elif how == "amount":
        return tl.where(here, amount(number), 0.0)
    elif how == "scaled":
        return tl.where(here, number.to(tl.float32) * (1.0 / channel_entry(c, DENSE, 2)), 0.0)
    else:
        axis: tl.constexpr = 0 if how == "rows" else 1
        return tl.where(here & ((number >> 1) == axis), ((number & 1) * 2 - 1).to(tl.float32), 0.0)


@triton.jit
def compact_channel(kind, status, items, c: tl.constexpr):
    """Decodes column c (0 … 23) of compact cells from their three bytes. `status` and `items` are read from 15 on."""
    if c < KINDS:
        return one_if(kind == c + 1)
    byte = items
    if channel_entry(c, False, 3) == 1:
        byte = status - channel_entry(c, False, 4)
    if channel_entry(c, False, 0) == "agent":
        return described(byte, (kind == 1) & (status > 0), c, False)
    else:
        return described(byte, (kind >= 3) & (kind <= 14), c, False)


@triton.jit
def compact_single(own, rows, columns, mask):
    """Decodes the columns after the cells that one byte decides: 0 … 53 and 63 of the 64.

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


@triton.constexpr_function
def dense_byte(c):
    """Returns which byte of a dense cell channel c ≥ 15 is read from, beside the kind."""
    return DENSE_TABLE.value[c - KINDS.value][3]


@triton.jit
def dense_channel(kind, byte, c: tl.constexpr):
    """Decodes column c (0 … 31) of dense cells; `byte` is number dense_byte(c) of the cell (not read for c < 15)."""
    if c < KINDS:
        return one_if(kind == c + 1)
    if channel_entry(c, True, 0) == "agent":
        return described(byte, kind == 1, c, True)
    else:
        return described(byte, (kind != 0) & (kind != 2), c, True)


@triton.jit
def dense_own(obs, rows, columns, mask):
    """Decodes the 24 columns after the cells, then 8 of zeros. As compact_single, but `obs` is byte 0 of row 0."""
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
