"""Decodes compact cells into inputs of a first layer, two at a time in the 16-bit lanes of an int32.

Eight cells side by side are one int64 of a plane (kinds, statuses or items: compact_kernels.py), four pairs here, and
16 bytes of a matrix in shared memory. A lane holds a byte, a bit (0 or 1), a mask or a number of 16 bits.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import triton
import triton.language as tl

from metta_fast.policy.grid.triton.decode import PTX, channel_entry, half_log

LOWEST = tl.constexpr(0x00010001)
"""Bit 0 of both lanes."""
BELOW = tl.constexpr(0x7FFF7FFF)
"""What a byte other than 0 is added to, to set the lanes' highest bit."""
EXACT = tl.constexpr(0x4B000000)
"""2^23 as float32: or-ed with n < 2^23 it is 2^23 + n."""


@triton.jit
def chosen(low, high, order: tl.constexpr):
    """Returns four of the eight bytes of two int32: order's hexadecimal digits are their numbers, lowest first."""
    if PTX:
        return tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", [low, high, order], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        both = (high.to(tl.int64) << 32) | (low.to(tl.int64) & 0xFFFFFFFF)
        found = tl.zeros_like(both)
        for i in tl.static_range(4):
            found |= (both >> (order >> 4 * i & 15) * 8 & 255) << 8 * i
        return found.to(tl.int32)


@triton.jit
def shifted(low, high, shift):
    """Returns the lowest 32 bits of two int32 shifted to the right by 0 … 31."""
    if PTX:
        return tl.inline_asm_elementwise(
            "shf.r.wrap.b32 $0, $1, $2, $3;",
            "=r,r,r,r",
            [low, high, shift],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    else:
        both = (high.to(tl.int64) << 32) | (low.to(tl.int64) & 0xFFFFFFFF)
        return (both >> shift.to(tl.int64)).to(tl.int32)


@triton.jit
def words(address, group):
    """Loads six int32 [groups, rows]: the bytes of cells 8 group … 8 group + 7 of rows at `address` (int64 [rows]).

    Groups 0 … 15: the window's 120 cells, then cell 120, the faced cell (bytes 383 … 385) and zeros. Words are read
    from aligned addresses, so with bytes beside the row, but none without a byte of it.
    """
    at = (address & -4).to(tl.pointer_type(tl.int32))[None, :] + group[:, None] * 6
    shift = ((address & 3) * 8).to(tl.int32)[None, :]
    inside = (group < 15)[:, None]
    far = tl.where(group < 15, 0, 3)[:, None]
    w0, w1 = tl.load(at), tl.load(at + 1)
    w2, w3 = tl.load(at + 2 + far), tl.load(at + 3 + far)
    w4 = tl.load(at + 4 + far, mask=inside | (shift == 24), other=0)
    w5 = tl.load(at + 5, mask=inside, other=0)
    w6 = tl.load(at + 6, mask=inside, other=0)
    a, b, c = shifted(w0, w1, shift), shifted(w1, w2, shift), shifted(w2, w3, shift)
    d, e, f = shifted(w3, w4, shift), shifted(w4, w5, shift), shifted(w5, w6, shift)
    a = tl.where(inside, a, chosen(a, c, 0x7210))
    b = tl.where(inside, b, d & 0xFFFF)
    return (
        a,
        b,
        tl.where(inside, c, 0),
        tl.where(inside, d, 0),
        tl.where(inside, e, 0),
        tl.where(inside, f, 0),
    )


@triton.jit
def planes(a, b, c):
    """Sorts three int32, the bytes of four cells, into their kinds, statuses and items."""
    kinds = chosen(chosen(a, b, 0x0630), c, 0x5210)
    statuses = chosen(chosen(a, b, 0x0741), c, 0x6210)
    return kinds, statuses, chosen(chosen(a, b, 0x0052), c, 0x7410)


@triton.jit
def eight_of(low, high):
    return (high.to(tl.int64) << 32) | (low.to(tl.int64) & 0xFFFFFFFF)


@triton.jit
def fresh(eight, step):
    """Returns the same int64, seen as new in each step of a loop, so that its pairs are made there.

    Made before the loop they would fill registers.
    """
    if PTX:
        eight = tl.inline_asm_elementwise(
            "mov.b64 $0, $1;", "=l,l,r", [eight, step], dtype=tl.int64, is_pure=True, pack=1
        )
    return eight


@triton.jit
def pair(word, order: tl.constexpr):
    """Returns two bytes of an int32, numbered as in `chosen`; 4 is 0."""
    if PTX:
        return chosen(word, tl.zeros_like(word), order)
    else:
        return (word >> order % 16 * 8 & 0xFF) | (word >> (order >> 8 & 15) * 8 & 0xFF) << 16


@triton.jit
def pairs(eight):
    """Splits eight bytes, int64, into four pairs."""
    low = eight.to(tl.int32)
    high = (eight >> 32).to(tl.int32)
    return pair(low, 0x4140), pair(low, 0x4342), pair(high, 0x4140), pair(high, 0x4342)


@triton.jit
def is_kind(cell, kind, dtype: tl.constexpr):
    """Returns 1.0 where a lane of `cell` is `kind`."""
    wanted = kind * LOWEST
    one: tl.constexpr = 0x3F80 if dtype == tl.bfloat16 else 0x3C00
    if PTX:
        # As subnormal fp16 numbers: 1.0 of that type, times the number whose bits are bf16's 1.0.
        if dtype == tl.bfloat16:
            return tl.inline_asm_elementwise(
                "{ .reg .b32 t, o; set.eq.f16x2.f16x2 t, $1, $2; mov.b32 o, 0x3F803F80; mul.f16x2 $0, t, o; }",
                "=r,r,r", [cell, wanted], dtype=tl.int32, is_pure=True, pack=1,
            )  # fmt: skip
        else:
            return tl.inline_asm_elementwise(
                "set.eq.f16x2.f16x2 $0, $1, $2;",
                "=r,r,r",
                [cell, wanted],
                dtype=tl.int32,
                is_pure=True,
                pack=1,
            )
    else:
        return (~((cell ^ wanted) + BELOW) >> 15 & LOWEST) * one


@triton.jit
def agent_bit(kind, status):
    return ((status + BELOW) & ~((kind ^ LOWEST) + BELOW)) >> 15 & LOWEST


@triton.jit
def converter_bit(kind):
    """Returns 1 for the kinds 3 … 14."""
    return ((kind + 0x7FFD7FFD) & (-0x7FF17FF2 - kind)) >> 15 & LOWEST  # 0x800E800E − kind


@triton.jit
def rounded(a, b, dtype: tl.constexpr):
    """Rounds two float32 to a pair of 16 bits each."""
    low = a.to(dtype).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    return low | (b.to(dtype).to(tl.int16, bitcast=True).to(tl.int32) << 16)


@triton.jit
def exact(n, less: tl.constexpr):
    """Returns n − less in float32 of an int32 0 … 15. (A conversion has a fourth of an addition's speed.)"""
    return (n | EXACT).to(tl.float32, bitcast=True) - (8388608.0 + less)


@triton.jit
def amounts(items, upper: tl.constexpr, dtype: tl.constexpr):
    """Returns decode.amount of the lower or the upper four bits."""
    n = items >> 4 if upper else items
    return rounded(half_log(exact(n & 15, -1.0)), half_log(exact(n >> 16 & 15, -1.0)), dtype)


@triton.jit
def channel(kind, status, items, c: tl.constexpr, dtype: tl.constexpr):
    """Decodes column c (15 … 23) of pairs of cells, rounded to dtype, from the same table as decode.compact_channel."""
    one: tl.constexpr = 0x3F80 if dtype == tl.bfloat16 else 0x3C00
    how: tl.constexpr = channel_entry(c, False, 1)
    shift: tl.constexpr = channel_entry(c, False, 5)
    byte = items
    if channel_entry(c, False, 3) == 1:
        byte = status
        if channel_entry(c, False, 4) == 1:
            byte = status + 0x00FF00FF  # status − 1 in the lowest 8 bits
    if channel_entry(c, False, 0) == "agent":
        here = agent_bit(kind, status)
    else:
        here = converter_bit(kind)
    if how == "rows" or how == "columns":
        here = here & (~(byte >> 1) if how == "rows" else byte >> 1)
        return here * one + ((here & ~byte) << 15)
    elif how == "some":
        if channel_entry(c, False, 6) == 1:
            return (here & (byte >> shift)) * one
        else:
            return (here & ((byte + BELOW) >> 15)) * one
    elif how == "scaled":
        scale: tl.constexpr = 1.0 / channel_entry(c, False, 2)
        n = byte >> shift & (here * 15)
        return rounded(exact(n & 15, 0.0) * scale, exact(n >> 16, 0.0) * scale, dtype)
    else:
        return amounts(byte, shift == 4, dtype) & (here * 0xFFFF)


@triton.jit
def spread(pair, dtype: tl.constexpr):
    """Splits pairs […] into their two numbers […, 2]."""
    low = pair.to(tl.int16).to(dtype, bitcast=True)
    return tl.join(low, (pair >> 16).to(tl.int16).to(dtype, bitcast=True))


@triton.jit
def spread_8(a, b, c, d, dtype: tl.constexpr):
    """Splits four pairs […] into the numbers of eight cells […, 2, 2, 2], the last axis the cell's highest bit."""
    return tl.join(tl.join(spread(a, dtype), spread(b, dtype)), tl.join(spread(c, dtype), spread(d, dtype)))
