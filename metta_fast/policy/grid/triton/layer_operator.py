"""The first layer over a grid observation on CUDA and ROCm as torch operators (kernels: gpu_layer.py, gpu_gradient.py).

    tokens ─► dense bytes ┐
    compact, dense ───────┴─► layer(obs, weight, bias) ─► out [R, width], kinds seen ─► layer_grad in the backward pass

Operators, so that autograd and torch.compile know them and eager and compiled code compute the same bits. They neither
wait for the device nor ask anything of it: a CUDA graph can hold them once they have run outside it (the first run of
a shape compiles). Tiles depend on dtype, layout and number of rows only, never on the card: so do the results.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from metta_fast.policy.grid.triton.decode import COMPACT_BYTES, DENSE_BYTES, PTX
from metta_fast.policy.grid.triton.layer_gradient import partial_kernel, total_kernel
from metta_fast.policy.grid.triton.layer_kernels import forward_kernel, pack_kernel, tokens_kernel
from metta_fast.runtime.torch_operator import operator

SPLITS = 16
"""Partial sums of the gradient: 17 programs each in the grid's own game, so that two fill a multiprocessor of 132."""
SMALL = 16384
"""Up to this many rows the tiles are of 64 rows, so that there are enough of them."""


def packed_rows(dense: bool) -> int:
    """Rows of the packed weight: 128 for each channel, then 48 (compact) or 32 for what belongs to no cell."""
    return 32 * 128 + 32 if dense else 24 * 128 + 48


def _block(width: int, dense: bool, dtype: torch.dtype) -> int:
    """Columns of a tile. Weights of all channels for 16 cells, twice, must fit shared memory of 99 KiB."""
    most = 128 if PTX.value and dtype != torch.float32 else 64
    return min(most // 2 if dense else most, max(triton.next_power_of_2(width), 16))


def _precision() -> str:
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def _tile_rows(rows: int, dtype: torch.dtype) -> int:
    if dtype == torch.float32:
        return 32
    return 64 if rows <= SMALL else 128


def _two_at_once(dtype: torch.dtype) -> dict[str, int]:
    """128 registers a thread: two programs of 8 warps on a multiprocessor, one decodes while the other multiplies."""
    return {"maxnreg": 128} if PTX.value and dtype != torch.float32 else {}


def pack(weight: Tensor, dense: bool, dtype: torch.dtype) -> Tensor:
    """weight float32 [columns, width] → [packed_rows, width rounded up to whole blocks]."""
    width = weight.shape[1]
    block = _block(width, dense, dtype)
    rows, columns = packed_rows(dense), triton.cdiv(width, block) * block
    packed = torch.empty(rows, columns, dtype=dtype, device=weight.device)
    pack_kernel[(rows // 16, columns // block)](
        weight.contiguous(), packed, width, columns, 16, block, dense, num_warps=4
    )
    return packed


def wide(obs: Tensor) -> bool:
    """A row's place among all needs 64 bits."""
    return obs.shape[0] * obs.stride(0) >= 2**31


def forward(
    obs: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype, numbers: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """uint8 [R, 387 or 2904], float32 [columns, width] and [width] → out [R, width] and the kinds seen in each tile.

    With numbers, int64 or int32 [R] of rows of obs, only of these and in their order (nobody checks that they exist).
    """
    dense = _checked(obs, weight, bias, numbers)
    rows, width = len(obs if numbers is None else numbers), weight.shape[1]
    out = torch.empty(rows, width, dtype=dtype, device=obs.device)
    tile = _tile_rows(rows, dtype)
    seen = torch.empty(triton.cdiv(rows, tile), dtype=torch.int32, device=obs.device)
    if rows:
        packed = pack(weight, dense, dtype)
        columns, block = packed.shape[1], _block(width, dense, dtype)
        forward_kernel[(len(seen), columns // block)](
            obs, obs.stride(0), numbers, packed, bias.contiguous(), out, seen, rows, width, columns, tile, block,
            dense, _precision(), 2, numbers is not None and wide(obs),
            num_warps=8 if tile == 128 else 4, **(_two_at_once(dtype) if tile == 128 else {}),
        )  # fmt: skip
    return out, seen


def gradient(
    obs: Tensor, grad: Tensor, seen: Tensor, columns: int, numbers: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Gradients float32 [columns, width] and [width] from the output's [R, width]; `seen` is the forward pass's."""
    dense = obs.shape[1] == DENSE_BYTES.value
    grad = grad.contiguous()
    rows, width = grad.shape
    if not rows:
        return torch.zeros(columns, width, device=obs.device), torch.zeros(width, device=obs.device)
    tile = _tile_rows(rows, grad.dtype)
    per_split = triton.cdiv(triton.cdiv(rows, SPLITS), 512) * 512
    splits = triton.cdiv(rows, per_split)
    half = grad.dtype != torch.float32
    block = min(128 if half else 32, max(triton.next_power_of_2(width), 16))
    padded = triton.cdiv(width, block) * block
    partials = torch.empty(splits, packed_rows(dense), padded, device=obs.device)
    shown = torch.empty(splits, dtype=torch.int32, device=obs.device)
    partial_kernel[((32 if dense else 24) + 3, splits, padded // block)](
        obs, obs.stride(0), numbers, grad, seen, shown, partials, rows, width, per_split, tile, padded, block,
        64 if half else 32, packed_rows(dense), dense, _precision(), 3, numbers is not None and wide(obs),
        num_warps=8, **_two_at_once(grad.dtype),
    )  # fmt: skip
    return total(partials, shown, columns, width, block, dense)


def total(
    partials: Tensor, shown: Tensor, columns: int, width: int, block: int, dense: bool
) -> tuple[Tensor, Tensor]:
    """Gradients [columns, width] and [width]: sums over the splits of partials [splits, rows, padded width]."""
    splits, rows, padded = partials.shape
    grad_weight = torch.empty(columns, width, device=partials.device)
    grad_bias = torch.empty(width, device=partials.device)
    block_rows = 512 // block
    total_kernel[(triton.cdiv(columns + 1, block_rows), padded // block)](
        partials, shown, grad_weight, grad_bias, width, padded, rows, block_rows, block, dense, splits,
        num_warps=4,
    )  # fmt: skip
    return grad_weight, grad_bias


def dense_of_tokens(tokens: Tensor, numbers: Tensor | None = None) -> Tensor:
    """uint8 [R, n * 3] → [R, 2904], as grid_layout.tokens_to_dense; of tokens that say the same the last counts.

    With numbers [R] of the rows of these tokens.
    """
    rows = len(tokens if numbers is None else numbers)
    dense = torch.empty(rows, DENSE_BYTES.value, dtype=torch.uint8, device=tokens.device)
    if rows:
        tokens_kernel[(rows,)](tokens, tokens.stride(0), numbers, dense, tokens.shape[1] // 3, num_warps=1)
    return dense


def _checked(obs: Tensor, weight: Tensor, bias: Tensor, numbers: Tensor | None) -> bool:
    """The kernels work on addresses: what they are given must fit. Returns whether the observation is dense."""
    columns = {COMPACT_BYTES.value: 2968, DENSE_BYTES.value: 3896}
    if obs.dtype != torch.uint8 or obs.ndim != 2 or obs.shape[1] not in columns or obs.stride(1) != 1:
        raise ValueError(
            f"observation {list(obs.shape)} {obs.dtype}, expected [rows, {' or '.join(map(str, columns))}] uint8 with "
            "the bytes of a row side by side"
        )
    expected = (columns[obs.shape[1]], len(bias))
    if weight.dtype != torch.float32 or bias.dtype != torch.float32 or weight.shape != expected:
        raise ValueError(
            f"weight {list(weight.shape)} {weight.dtype} and bias {list(bias.shape)} {bias.dtype}, "
            f"expected {list(expected)} and [{expected[1]}] float32"
        )
    check_numbers(numbers)
    return obs.shape[1] == DENSE_BYTES.value


def check_numbers(numbers: Tensor | None) -> None:
    if numbers is not None and (
        numbers.dtype not in (torch.int64, torch.int32) or numbers.ndim != 1 or not numbers.is_contiguous()
    ):
        raise ValueError(
            f"row numbers {list(numbers.shape)} {numbers.dtype}, expected [rows] int64 or int32, contiguous"
        )


layer = operator("gpu_layer", "cuda")(forward)
layer_grad = operator("gpu_layer_grad", "cuda")(gradient)
tokens_op = operator("gpu_dense_of_tokens", "cuda")(dense_of_tokens)


@layer.register_fake
def _(
    obs: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype, numbers: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    rows = (obs if numbers is None else numbers).shape[0]
    tiles = triton.cdiv(rows, _tile_rows(rows, dtype))
    return obs.new_empty(rows, weight.shape[1], dtype=dtype), obs.new_empty(tiles, dtype=torch.int32)


@layer_grad.register_fake
def _(
    obs: Tensor, grad: Tensor, seen: Tensor, columns: int, numbers: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    width = grad.shape[1]
    return obs.new_empty(columns, width, dtype=torch.float32), obs.new_empty(width, dtype=torch.float32)


@tokens_op.register_fake
def _(tokens: Tensor, numbers: Tensor | None = None) -> Tensor:
    return tokens.new_empty((tokens if numbers is None else numbers).shape[0], DENSE_BYTES.value)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    obs, weight, _, _, numbers = inputs
    ctx.save_for_backward(obs, output[1], numbers)
    ctx.columns = weight.shape[0]
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[None, Tensor, Tensor, None, None]:
    obs, seen, numbers = ctx.saved_tensors
    return None, *layer_grad(obs, grad, seen, ctx.columns, numbers), None, None


layer.register_autograd(_backward, setup_context=_setup)
