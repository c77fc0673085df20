"""Offers the first layer over a grid observation on CUDA and ROCm as torch operators (layer_kernels.py, gradient.py).

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

from metta_fast.policy.grid.layout import COMPACT_COLUMNS, DENSE_COLUMNS
from metta_fast.policy.grid.triton.decode import COMPACT_BYTES, DENSE_BYTES, PTX
from metta_fast.policy.grid.triton.gradient import gradient_of, packed_rows, two_at_once
from metta_fast.policy.grid.triton.layer_kernels import forward_kernel, pack_kernel, tokens_kernel
from metta_fast.runtime.torch_operator import operator

SMALL = 16384
"""Up to this many rows, tiles are of 64 rows, so that there are enough of them."""


def _block(width: int, dense: bool, dtype: torch.dtype) -> int:
    """Returns the columns of a tile. Weights of all channels for 16 cells, twice, must fit shared memory of 99 KiB."""
    most = 128 if PTX.value and dtype != torch.float32 else 64
    return min(most // 2 if dense else most, max(triton.next_power_of_2(width), 16))


def _precision() -> str:
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def _tile_rows(rows: int, dtype: torch.dtype) -> int:
    if dtype == torch.float32:
        return 32
    return 64 if rows <= SMALL else 128


def pack(weight: Tensor, dense: bool, dtype: torch.dtype) -> Tensor:
    """Packs a weight float32 [columns, width] → [packed_rows, width rounded up to whole blocks]."""
    return pack_weight(weight, dtype, packed_rows(dense), _block(weight.shape[1], dense, dtype), dense)


def pack_weight(
    weight: Tensor, dtype: torch.dtype, rows: int, block: int, dense: bool, parts: bool = False
) -> Tensor:
    """Packs a weight into `rows` rows; `parts`: in the order of compact_kernels.py."""
    width = weight.shape[1]
    columns = triton.cdiv(width, block) * block
    packed = torch.empty(rows, columns, dtype=dtype, device=weight.device)
    pack_kernel[(rows // 16, columns // block)](
        weight.contiguous(), packed, width, columns, 16, block, dense, parts, num_warps=4
    )
    return packed


def wide(obs: Tensor) -> bool:
    """Returns whether a row's place among all needs 64 bits."""
    return obs.shape[0] * obs.stride(0) >= 2**31


def forward(
    obs: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype, numbers: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Computes out [R, width] from uint8 [R, 387 or 2904], and the kinds seen in each tile.

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
            num_warps=8 if tile == 128 else 4, **(two_at_once(dtype) if tile == 128 else {}),
        )  # fmt: skip
    return out, seen


def gradient(
    obs: Tensor, grad: Tensor, seen: Tensor, columns: int, numbers: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Computes gradients float32 [columns, width] and [width] from the output's [R, width] and the forward's `seen`."""
    return gradient_of(
        obs,
        grad,
        seen,
        columns,
        "dense" if obs.shape[1] == DENSE_BYTES.value else "compact",
        _tile_rows(len(grad), grad.dtype),
        numbers=numbers,
        precision=_precision(),
    )


def dense_of_tokens(tokens: Tensor, numbers: Tensor | None = None) -> Tensor:
    """Puts tokens uint8 [R, n * 3] back into [R, 2904] as layout.tokens_to_dense; of equal places the last counts.

    With numbers [R] of the rows of these tokens.
    """
    rows = len(tokens if numbers is None else numbers)
    dense = torch.empty(rows, DENSE_BYTES.value, dtype=torch.uint8, device=tokens.device)
    if rows:
        tokens_kernel[(rows,)](tokens, tokens.stride(0), numbers, dense, tokens.shape[1] // 3, num_warps=1)
    return dense


def _checked(obs: Tensor, weight: Tensor, bias: Tensor, numbers: Tensor | None) -> bool:
    """Checks what a kernel is given, as it works on addresses. Returns whether the observation is dense."""
    columns = {COMPACT_BYTES.value: COMPACT_COLUMNS, DENSE_BYTES.value: DENSE_COLUMNS}
    check_obs(obs, tuple(columns), numbers)
    check_weight(weight, bias, columns[obs.shape[1]])
    return obs.shape[1] == DENSE_BYTES.value


def check_obs(obs: Tensor, sizes: tuple[int, ...], numbers: Tensor | None) -> None:
    """Refuses observations that are not uint8 [rows, one of `sizes`], and row numbers that are no list of integers."""
    if obs.dtype != torch.uint8 or obs.ndim != 2 or obs.shape[1] not in sizes or obs.stride(1) != 1:
        raise ValueError(
            f"observation {list(obs.shape)} {obs.dtype}, expected [rows, {' or '.join(map(str, sizes))}] uint8 with "
            "the bytes of a row side by side"
        )
    if numbers is not None and (
        numbers.dtype not in (torch.int64, torch.int32) or numbers.ndim != 1 or not numbers.is_contiguous()
    ):
        raise ValueError(
            f"row numbers {list(numbers.shape)} {numbers.dtype}, expected [rows] int64 or int32, contiguous"
        )


def check_weight(weight: Tensor, bias: Tensor, columns: int) -> None:
    """Refuses a weight that is not float32 [columns, width], or a bias that is not float32 [width]."""
    expected = (columns, len(bias))
    if weight.dtype != torch.float32 or bias.dtype != torch.float32 or weight.shape != expected:
        raise ValueError(
            f"weight {list(weight.shape)} {weight.dtype} and bias {list(bias.shape)} {bias.dtype}, "
            f"expected {list(expected)} and [{expected[1]}] float32"
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
