"""The first layer over compact observations with weights of 16 bits on NVIDIA, as torch operators.

    cells(obs, rows) ─► layer(cells, weight, bias) ─► out [R, width]          kernels: gpu_cells.py
                   └──► layer_grad in the backward pass                                gpu_cells_gradient.py

As gpu_sparse.py's, which is for everything else: known to autograd and torch.compile, fit for a CUDA graph. How rows
are cut into tiles and splits depends on their number only, never on the card.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor

from metta_fast.policy.grid.triton.compact_gradient import cells_partial_kernel
from metta_fast.policy.grid.triton.compact_kernels import (
    PACKED,
    cells_forward_kernel,
    cells_kernel,
    cells_pack_kernel,
)
from metta_fast.policy.grid.triton.decode import COMPACT_BYTES, PTX
from metta_fast.policy.grid.triton.layer_operator import (
    SMALL,
    SPLITS,
    check_numbers,
    packed_rows,
    total,
    wide,
)
from metta_fast.runtime.torch_operator import operator

SEEN = 32
"""Rows of a program of cells_kernel, for which it says which kinds there are."""
TILE = 128
"""`cells` has whole tiles of so many rows."""
COLUMNS = 2968
TWO_AT_ONCE = {"maxnreg": 128} if PTX.value else {}
"""Registers a thread: two programs of 8 warps on a multiprocessor, one decodes while the other multiplies."""


@cache
def shared_memory(index: int) -> int:
    """Bytes that one program may have on that device."""
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


def _block(width: int, device: torch.device) -> int:
    """Columns of a tile. With 128 a program takes 102 KiB of shared memory, with 64 it takes 70."""
    most = 128
    if device.type == "cuda" and shared_memory(device.index) < 102 * 1024:
        most = 64
    return min(most, max(triton.next_power_of_2(width), 16))


def cells(obs: Tensor, dtype: torch.dtype, numbers: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """uint8 [n, 387], or of its rows those in numbers [R] → their bytes in order, for both passes.

    Returns: cells int64 [R rounded up to tiles, 48], own inputs [as many, 64] in `dtype` (16 bits), and which kinds
    are seen, int32 [as many / SEEN].
    """
    if obs.dtype != torch.uint8 or obs.ndim != 2 or obs.shape[1] != COMPACT_BYTES.value or obs.stride(1) != 1:
        raise ValueError(
            f"observation {list(obs.shape)} {obs.dtype}, expected [rows, 387] uint8 with the bytes of a row side by "
            "side"
        )
    check_numbers(numbers)
    rows = len(obs if numbers is None else numbers)
    found = _new_cells(obs, dtype, rows)
    if rows:
        cells_kernel[(len(found[2]),)](
            obs, obs.stride(0), numbers, *found, rows, SEEN, numbers is not None and wide(obs), num_warps=4
        )
    return found


def _new_cells(obs: Tensor, dtype: torch.dtype, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    whole = (rows + TILE - 1) // TILE * TILE
    return (
        obs.new_empty(whole, 48, dtype=torch.int64),
        obs.new_empty(whole, 64, dtype=dtype),
        obs.new_empty(whole // SEEN, dtype=torch.int32),
    )


def pack(weight: Tensor, dtype: torch.dtype, block: int) -> Tensor:
    """weight float32 [2968, width] → [PACKED, width rounded up to whole blocks]."""
    width = weight.shape[1]
    columns = triton.cdiv(width, block) * block
    packed = torch.empty(PACKED.value, columns, dtype=dtype, device=weight.device)
    cells_pack_kernel[(PACKED.value // 16, columns // block)](
        weight.contiguous(), packed, width, columns, 16, block, num_warps=4
    )
    return packed


def forward(cells: Tensor, own: Tensor, seen: Tensor, weight: Tensor, bias: Tensor, rows: int) -> Tensor:
    """What `cells` gives of `rows` rows, float32 [2968, width] and [width] → [rows, width] in own's dtype."""
    if weight.dtype != torch.float32 or bias.dtype != torch.float32 or weight.shape != (COLUMNS, len(bias)):
        raise ValueError(
            f"weight {list(weight.shape)} {weight.dtype} and bias {list(bias.shape)} {bias.dtype}, "
            f"expected [{COLUMNS}, {len(bias)}] and [{len(bias)}] float32"
        )
    width = weight.shape[1]
    out = torch.empty(rows, width, dtype=own.dtype, device=own.device)
    if rows:
        block = _block(width, own.device)
        packed = pack(weight, own.dtype, block)
        tile = 64 if rows <= SMALL else 128
        keys = {"num_warps": 4} if tile == 64 else {"num_warps": 8, **TWO_AT_ONCE}
        cells_forward_kernel[(triton.cdiv(rows, tile), packed.shape[1] // block)](
            cells, own, seen, packed, bias.contiguous(), out, rows, width, packed.shape[1], tile, block, SEEN, 2,
            **keys,
        )  # fmt: skip
    return out


def gradient(cells: Tensor, own: Tensor, seen: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients float32 [2968, width] and [width] from the output's [R, width]."""
    grad = grad.contiguous()
    rows, width = grad.shape
    if not rows:
        return grad.new_zeros(COLUMNS, width, dtype=torch.float32), grad.new_zeros(width, dtype=torch.float32)
    per_split = triton.cdiv(triton.cdiv(rows, SPLITS), 512) * 512
    splits = triton.cdiv(rows, per_split)
    block = min(128, max(triton.next_power_of_2(width), 16))
    padded = triton.cdiv(width, block) * block
    partials = torch.empty(splits, packed_rows(False), padded, device=grad.device)
    shown = torch.empty(splits, dtype=torch.int32, device=grad.device)
    cells_partial_kernel[(26, splits, padded // block)](
        cells, own, grad, seen, shown, partials, rows, width, per_split, SEEN, padded, block, 64, packed_rows(False), 3,
        num_warps=8, **TWO_AT_ONCE,
    )  # fmt: skip
    return total(partials, shown, COLUMNS, width, block, dense=False)


cells_op = operator("gpu_cells", "cuda")(cells)
layer = operator("gpu_cells_layer", "cuda")(forward)
layer_grad = operator("gpu_cells_grad", "cuda")(gradient)


@cells_op.register_fake
def _(obs: Tensor, dtype: torch.dtype, numbers: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    return _new_cells(obs, dtype, (obs if numbers is None else numbers).shape[0])


@layer.register_fake
def _(cells: Tensor, own: Tensor, seen: Tensor, weight: Tensor, bias: Tensor, rows: int) -> Tensor:
    return own.new_empty(rows, weight.shape[1])


@layer_grad.register_fake
def _(cells: Tensor, own: Tensor, seen: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    width = grad.shape[1]
    return grad.new_empty(COLUMNS, width, dtype=torch.float32), grad.new_empty(width, dtype=torch.float32)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return None, None, None, *layer_grad(*ctx.saved_tensors, grad), None


layer.register_autograd(_backward, setup_context=_setup)
