"""Gathers rows of bytes from a buffer on the GPU, four bytes at a time for any row length.

Four rows have as many words as one row has bytes. A word of the result is made of the two words that it straddles in
its row, and at a row's end, of the next row's words as well.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from metta_fast.runtime.torch_operator import operator

WORDS = 512
"""Words of the result per program."""


@triton.jit
def word_at(words, at, count):
    """Returns the four bytes from byte `at` on, of uint32 words [count]; undefined past the last word."""
    word = at >> 2
    low = tl.load(words + word, mask=word < count, other=0)
    high = tl.load(words + word + 1, mask=word + 1 < count, other=0)
    shift = ((at & 3) * 8).to(tl.uint32)
    return (low >> shift) | ((high << 1) << (31 - shift))


@triton.jit
def gather_rows_kernel(
    words, numbers, out, count, total, BYTES: tl.constexpr, BLOCK: tl.constexpr, WIDE: tl.constexpr
):
    """Copies rows `numbers` of BYTES bytes from words uint32 [count] to out uint32 [total]. WIDE: byte offsets need
    64 bits."""
    word = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = word < total
    four = word // BYTES
    column = (word - four * BYTES) * 4
    second, third, fourth = column >= BYTES, column >= 2 * BYTES, column >= 3 * BYTES
    within = tl.where(second, 1, 0) + tl.where(third, 1, 0) + tl.where(fourth, 1, 0)
    column -= within * BYTES
    row = four * 4 + within
    kind: tl.constexpr = tl.int64 if WIDE else tl.int32
    start = tl.load(numbers + row, mask=inside, other=0).to(kind) * BYTES
    value = word_at(words, start + column, tl.where(inside, count, 0))
    left = BYTES - column  # bytes left in this row
    both = inside & (left < 4)
    start = tl.load(numbers + row + 1, mask=both, other=0).to(kind) * BYTES
    following = word_at(words, start, tl.where(both, count, 0))
    shift = (tl.minimum(left, 3) * 8).to(tl.uint32)
    kept = value << (32 - shift) >> (32 - shift)
    value = tl.where(both, kept | (following << shift), value)
    tl.store(out + word, value, mask=inside)


def fits(flat: Tensor, rows: Tensor) -> bool:
    """Returns whether `gather_rows` supports them: uint8, whole words in total, fewer of them than 2^31."""
    size = flat[0].numel() if len(flat) else 0
    return (
        flat.dtype == torch.uint8
        and size >= 4
        and flat.is_contiguous()
        and flat.storage_offset() % 4 == 0
        and flat.numel() % 4 == 0
        and len(rows) * size % 4 == 0
        and len(rows) * size < 2**33
    )


def gather_rows(flat: Tensor, rows: Tensor) -> Tensor:
    """Returns flat.index_select(0, rows) of uint8 [n, …] and int64 [R] (unchecked). Needs `fits`."""
    size = flat[0].numel()
    out = torch.empty(len(rows), *flat.shape[1:], dtype=torch.uint8, device=flat.device)
    total = out.numel() // 4
    if total:
        gather_rows_kernel[(triton.cdiv(total, WORDS),)](
            flat.view(-1).view(torch.uint32), rows.contiguous(), out.view(-1).view(torch.uint32),
            flat.numel() // 4, total, size, WORDS, flat.numel() >= 2**31, num_warps=4,
        )  # fmt: skip
    return out


gather_rows_op = operator("gather_rows", "cuda")(gather_rows)


@gather_rows_op.register_fake
def _(flat: Tensor, rows: Tensor) -> Tensor:
    return flat.new_empty(len(rows), *flat.shape[1:])
