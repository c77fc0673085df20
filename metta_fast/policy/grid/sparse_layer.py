"""Computes the first layer over a grid observation, `decode(obs) @ weight + bias`, without decoded inputs in memory.

    CPU           a C kernel adds up the few weight rows whose inputs are not zero (sparse_layer.h)
    CUDA, ROCm    Triton kernels decode in registers and multiply in the autocast dtype (triton/)
    elsewhere     torch decodes the inputs and multiplies them in the autocast dtype

The first two are torch operators, so autograd and torch.compile know them.

Tried for compact and width 128, thousands of rows/s on one core of a loaded machine, forward | with backward:
this kernel 2200 | 950; a float32 product of decoded inputs 30 | 16; `embedding_bag` of one row for each cell
1400 | 37.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metta_fast.policy.grid import _sparse_layer  # type: ignore[attr-defined]
from metta_fast.policy.grid.layout import LAYOUTS, Layout
from metta_fast.runtime.thread_share import share
from metta_fast.runtime.torch_operator import operator

GRAIN = 256
"""Fewest rows for which one more thread pays."""
STRIP = 64
"""Outputs that the kernel keeps in registers: threads take whole strips in the backward pass."""

SCALE = (torch.arange(256, dtype=torch.float32) + 1.0).log2().mul(0.5).contiguous()


class SparseLayer(nn.Module):
    """Maps obs uint8 […, *layout.shape] to […, width] float32 (in the autocast dtype off the CPU)."""

    def __init__(self, layout: Layout, width: int) -> None:
        super().__init__()
        self.layout = layout
        self.weight = nn.Parameter(sparse_rows(layout.columns, width, layout.active))
        """[columns, width]: row per input."""
        self.bias = nn.Parameter(torch.zeros(width))
        self.triton = triton_operators()

    def forward(self, obs: Tensor) -> Tensor:
        device = obs.device.type
        if device != "cpu" and not (device == "cuda" and self.triton):
            return self.decoded(obs)
        rows = obs.flatten(-len(self.layout.shape)) if len(self.layout.shape) > 1 else obs
        flat = rows.reshape(-1, rows.shape[-1])
        if device == "cpu":
            out = sparse_layer(flat, self.weight, self.bias, self.layout.index)
        else:
            out = self._by_triton(flat, None)
        return out.view(*rows.shape[:-1], out.shape[-1])

    def at_rows(self, obs: Tensor, rows: Tensor) -> Tensor:
        """Computes the same for some rows of a buffer, [R, width].

        Triton's kernels read them in place, some again in the backward pass: obs must not change until then.

        Args:
            obs: uint8 […, *layout.shape], its first dimensions counted as one.
            rows: int64 or int32 [R], which of these.
        """
        flat = obs.reshape(-1, *self.layout.shape)
        if not (obs.device.type == "cuda" and self.triton):
            return self(flat.index_select(0, rows))
        return self._by_triton(flat.flatten(1), rows)

    def _by_triton(self, flat: Tensor, rows: Tensor | None) -> Tensor:
        """flat: uint8 [n, bytes]."""
        operators = torch.ops.metta_fast
        dtype = product_dtype(flat.device.type)
        if self.layout == LAYOUTS["compact"] and dtype != torch.float32 and torch.version.hip is None:
            cells = operators.gpu_cells(flat, dtype, rows)
            return operators.gpu_cells_layer(
                *cells, self.weight, self.bias, (flat if rows is None else rows).shape[0]
            )
        if self.layout == LAYOUTS["tokens"]:
            flat, rows = operators.gpu_dense_of_tokens(flat, rows), None
        return operators.gpu_layer(flat, self.weight, self.bias, dtype, rows)[0]

    def decoded(self, obs: Tensor) -> Tensor:
        """Computes the same by a matrix product, on any device."""
        inputs = self.layout.decode(obs, product_dtype(obs.device.type))
        return F.linear(inputs, self.weight.t(), self.bias)


def sparse_rows(inputs: int, outputs: int, active: float) -> Tensor:
    """Returns orthogonal weights [inputs, outputs] for a layer before a ReLU; `active`: mean sum of squared inputs."""
    weight = torch.empty(outputs, inputs)
    nn.init.orthogonal_(weight, math.sqrt(2.0) * math.sqrt(max(inputs, outputs) / active))
    return weight.t().contiguous()


def product_dtype(device: str) -> torch.dtype:
    """Returns the dtype in which a linear layer multiplies on a device: autocast's, else float32."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else torch.float32


@cache
def triton_operators() -> bool:
    """Registers the operators of triton/ if there is Triton and a CUDA or ROCm device."""
    if not torch.cuda.is_available() or find_spec("triton") is None:
        return False
    from metta_fast.policy.grid.triton import compact_operator, layer_operator  # noqa: F401

    return True


@operator("sparse_layer", "cpu")
def sparse_layer(obs: Tensor, weight: Tensor, bias: Tensor, layout: int) -> Tensor:
    """Computes float32 [rows, width] from uint8 [rows, bytes], weight [columns, width] and bias [width]."""
    _check(obs, weight, bias, layout)
    obs, weight, bias = obs.contiguous(), weight.contiguous(), bias.contiguous()
    rows, width = obs.shape[0], weight.shape[1]
    out = torch.empty(rows, width)
    at = [x.data_ptr() for x in (obs, SCALE, weight, bias, out)]
    share(lambda lo, hi: _sparse_layer.forward(layout, *at, width, lo, hi), rows, GRAIN)
    return out


@operator("sparse_layer_grad", "cpu")
def sparse_layer_grad(obs: Tensor, grad: Tensor, columns: int, layout: int) -> Tensor:
    """Computes the weight's gradient [columns, width] from the output's [rows, width]."""
    obs, grad = obs.contiguous(), grad.float().contiguous()
    rows, width = grad.shape
    grad_weight = torch.zeros(columns, width)
    at = [x.data_ptr() for x in (obs, SCALE, grad, grad_weight)]
    share(
        lambda lo, hi: _sparse_layer.backward(layout, *at, rows, width, lo, hi),
        width,
        STRIP if rows >= GRAIN else width,
    )
    return grad_weight


@sparse_layer.register_fake
def _(obs: Tensor, weight: Tensor, bias: Tensor, layout: int) -> Tensor:
    return weight.new_empty(obs.shape[0], weight.shape[1])


@sparse_layer_grad.register_fake
def _(obs: Tensor, grad: Tensor, columns: int, layout: int) -> Tensor:
    return obs.new_empty(columns, grad.shape[1], dtype=torch.float32)


def _setup(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    obs, weight, _, layout = inputs
    ctx.save_for_backward(obs)
    ctx.columns, ctx.layout = weight.shape[0], layout


def _backward(ctx, grad):  # type: ignore[no-untyped-def]
    (obs,) = ctx.saved_tensors
    return None, sparse_layer_grad(obs, grad, ctx.columns, ctx.layout), grad.sum(0), None


sparse_layer.register_autograd(_backward, setup_context=_setup)


def _check(obs: Tensor, weight: Tensor, bias: Tensor, layout: int) -> None:
    """Refuses tensors that do not fit together: the kernel works on addresses."""
    found = next(entry for entry in LAYOUTS.values() if entry.index == layout)
    size = torch.Size(found.shape).numel()
    if obs.dtype != torch.uint8 or obs.ndim != 2 or obs.shape[1] != size:
        raise ValueError(f"observation {list(obs.shape)} {obs.dtype}, expected [rows, {size}] uint8")
    if (
        weight.dtype != torch.float32
        or bias.dtype != torch.float32
        or weight.shape != (found.columns, len(bias))
    ):
        raise ValueError(
            f"weight {list(weight.shape)} {weight.dtype} and bias {list(bias.shape)} {bias.dtype}, "
            f"expected [{found.columns}, width] and [width] float32"
        )
