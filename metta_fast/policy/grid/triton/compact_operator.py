"""Offers the first layer over compact observations with weights of 16 bits on NVIDIA as torch operators.

    cells(obs, rows) ─► layer(cells, weight, bias) ─► out [R, width]          kernels: compact_kernels.py
                   └──► layer_grad in the backward pass                                gradient.py

Like those of layer_operator.py, which are for everything else, autograd and torch.compile know them and CUDA graphs can
hold them. How rows are cut into tiles and splits depends on their number only, never on the card.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor

from metta_fast.policy.grid.layout import COMPACT_COLUMNS
from metta_fast.policy.grid.triton.compact_kernels import PACKED, cells_forward_kernel, cells_kernel
from metta_fast.policy.grid.triton.decode import COMPACT_BYTES
from metta_fast.policy.grid.triton.gradient import gradient_of, two_at_once
from metta_fast.policy.grid.triton.layer_operator import SMALL, check_obs, check_weight, pack_weight, wide
from metta_fast.runtime.torch_operator import operator

SEEN = 32
"""Rows of a program of cells_kernel: it tells for each such tile which kinds there are."""
TILE = 128
"""Rows of a tile of `cells`, which has whole tiles."""


@cache
def shared_memory(index: int) -> int:
    """Returns the bytes of shared memory that one program may use on a device."""
    return int(triton.runtime.driver.active.utils.get_device_properties(index)["max_shared_mem"])


def _block(width: int, device: torch.device) -> int:
    """Returns the columns of a tile. With 128 a program takes 102 KiB of shared memory, with 64 it takes 70."""
    most = 128
    if device.type == "cuda" and shared_memory(device.index) < 102 * 1024:
        most = 64
    return min(most, max(triton.next_power_of_2(width), 16))


def cells(obs: Tensor, dtype: torch.dtype, numbers: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Puts the bytes of uint8 [n, 387], or of its rows in numbers [R], in order for both passes.

    Returns: cells int64 [R rounded up to tiles, 48], own inputs [as many, 64] in `dtype` (16 bits), and which kinds
    are seen, int32 [as many / SEEN].
    """
    check_obs(obs, (COMPACT_BYTES.value,), numbers)
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
    """Packs a weight float32 [2968, width] → [PACKED, width rounded up to whole blocks]."""
    return pack_weight(weight, dtype, PACKED.value, block, dense=False, parts=True)


def forward(cells: Tensor, own: Tensor, seen: Tensor, weight: Tensor, bias: Tensor, rows: int) -> Tensor:
    """Computes the output [rows, width] in own's dtype from what `cells` returned and the layer's weight and bias."""
    check_weight(weight, bias, COMPACT_COLUMNS)
    width = weight.shape[1]
    out = torch.empty(rows, width, dtype=own.dtype, device=own.device)
    if rows:
        block = _block(width, own.device)
        packed = pack(weight, own.dtype, block)
        tile = 64 if rows <= SMALL else 128
        keys = {"num_warps": 4} if tile == 64 else {"num_warps": 8, **two_at_once(own.dtype)}
        cells_forward_kernel[(triton.cdiv(rows, tile), packed.shape[1] // block)](
            cells, own, seen, packed, bias.contiguous(), out, rows, width, packed.shape[1], tile, block, SEEN, 2,
            **keys,
        )  # fmt: skip
    return out


def gradient(cells: Tensor, own: Tensor, seen: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Computes gradients float32 [2968, width] and [width] from the output's [R, width]."""
    return gradient_of(cells, grad, seen, COMPACT_COLUMNS, "cells", SEEN, own=own)


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
    return grad.new_empty(COMPACT_COLUMNS, width, dtype=torch.float32), grad.new_empty(
        width, dtype=torch.float32
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return None, None, None, *layer_grad(*ctx.saved_tensors, grad), None


layer.register_autograd(_backward, setup_context=_setup)
