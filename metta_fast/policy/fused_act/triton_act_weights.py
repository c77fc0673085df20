"""Packs a policy's weights in the order and dtype of the kernel for a rollout's row (triton_act.py): two launches.

    first layer ─► pack_kernel (layer_kernels.py): its rows by channel, then those of no cell
    all else    ─► pack_rest: matrices with inputs first, heads as sums of 16-bit parts, biases

They are packed again in each epoch, before its first row, when nothing else can run.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from metta_fast.policy.cores import MinGRUCore
from metta_fast.policy.fused_act.applies import power
from metta_fast.policy.grid.triton.decode import COMPACT_CHANNELS
from metta_fast.policy.grid.triton.layer_kernels import pack_kernel
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.plan import Plan, plan_of

CELL_ROWS = int(COMPACT_CHANNELS) * 128
"""Packed rows of the first layer that belong to cells: 128 for each channel."""
OWN_ROWS = 64
ROWS, INPUTS = 64, 16
"""Per program: packed rows of the first layer; inputs of the matrices."""


@triton.jit
def pack_rest(
    first_bias, second, second_bias, gates, gates_bias, heads, heads_bias, source,
    to_first_bias, to_second, to_second_bias, to_gates, to_gates_bias, to_head, to_head_bias, to_value, to_value_bias,
    width, last, H: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """Packs everything but the first layer's weights. source int32 [COLUMNS]: each choice's row of the heads, -1: none;
    last: the value's. Padding is written as 0; biases of columns without a choice are not written."""
    i = tl.program_id(0) * INPUTS + tl.arange(0, INPUTS)
    j = tl.arange(0, H)
    inside = (i < width)[:, None] & (j < width)[None, :]
    dtype: tl.constexpr = to_second.dtype.element_ty
    from_at = j[None, :] * width + i[:, None]
    to_at = i[:, None] * H + j[None, :]
    tl.store(to_second + to_at, tl.load(second + from_at, mask=inside, other=0.0).to(dtype))
    if GATED:
        for part in tl.static_range(3):
            gate = tl.load(gates + part * width * width + from_at, mask=inside, other=0.0)
            tl.store(to_gates + part * H * H + to_at, gate.to(dtype))

    column = tl.arange(0, COLUMNS)
    row = tl.load(source + column)
    chosen = (i < width)[:, None] & (row >= 0)[None, :]
    left = tl.load(heads + row[None, :] * width + i[:, None], mask=chosen, other=0.0)
    for part in tl.static_range(PARTS):
        rounded = left.to(dtype)
        tl.store(to_head + (part * H + i[:, None]) * COLUMNS + column[None, :], rounded)
        left -= rounded.to(tl.float32)
    tl.store(to_value + i, tl.load(heads + last * width + i, mask=i < width, other=0.0))

    if tl.program_id(0) == 0:
        there = j < width
        tl.store(to_first_bias + j, tl.load(first_bias + j, mask=there, other=0.0))
        bias = tl.load(second_bias + j, mask=there, other=0.0)
        tl.store(to_second_bias + j, bias.to(dtype).to(tl.float32))
        if GATED:
            for part in tl.static_range(3):
                bias = tl.load(gates_bias + part * width + j, mask=there, other=0.0)
                tl.store(to_gates_bias + part * H + j, bias.to(dtype).to(tl.float32))
        tl.store(to_head_bias + column, tl.load(heads_bias + row, mask=row >= 0, other=0.0), mask=row >= 0)
        tl.store(to_value_bias, tl.load(heads_bias + last))


@dataclass
class Packed:
    """Holds copies of a policy's weights in the kernel's layout, at addresses that never change.

    H is the width, rounded up to a power of two; so are W heads of P choices. In the padding, weights are 0 and a
    choice's bias is −inf (a head's first choice: 0).
    """

    plan: Plan
    dtype: torch.dtype
    heads: int
    first: Tensor
    """[24 * 128 + 64, H]: a channel's rows, one for each cell; then those of no cell."""
    own: Tensor
    """[64, H]: the rows of no cell."""
    first_bias: Tensor
    """[H] float32."""
    second: Tensor
    """[H, H], inputs first."""
    second_bias: Tensor
    """[H] float32, rounded to dtype as autocast does."""
    gates: Tensor | None
    """[3, H, H], inputs first; None: no core."""
    gates_bias: Tensor | None
    """[3, H] float32, rounded as second_bias."""
    head: Tensor
    """[parts, H, W·P]: the weight is the sum of the parts."""
    head_bias: Tensor
    """[W·P] float32."""
    value: Tensor
    """[H] float32."""
    value_bias: Tensor
    """[1] float32."""
    choices: int
    """P."""
    source: Tensor
    """[W·P] int32: each choice's row of the policy's heads; -1: none."""

    @torch.no_grad()
    def update(self) -> None:
        """Reads the policy's weights again. Runs on the device only, so a CUDA graph may capture it."""
        trunk, out = self.plan.actor, self.plan.heads
        (layer,) = trunk.sparse.values()
        second = trunk.second
        gates = trunk.core.input if isinstance(trunk.core, MinGRUCore) else None
        width, size = len(layer.bias), self.first.shape[1]
        pack_kernel[(len(self.first) // ROWS, 1)](
            layer.weight, self.first, width, size, ROWS, size, False, num_warps=8
        )
        pack_rest[(size // INPUTS,)](
            layer.bias, second.weight, second.bias, gates and gates.weight, gates and gates.bias, out.weight, out.bias,
            self.source, self.first_bias, self.second, self.second_bias, self.gates, self.gates_bias, self.head,
            self.head_bias, self.value, self.value_bias, width, len(out.bias) - 1,
            H=size, COLUMNS=self.head.shape[2], PARTS=len(self.head), GATED=gates is not None, INPUTS=INPUTS,
            num_warps=4,
        )  # fmt: skip


def pack(policy: nn.Module, dtype: torch.dtype) -> Packed:
    """Returns the weights for `fused_act`, on the policy's device.

    Args:
        policy: `applies.not_in_triton` must return None for it.
        dtype: autocast's, for the layers' products and outputs.
    """
    plan = plan_of(policy)
    assert isinstance(plan, Plan), plan
    assert isinstance(plan.head, ActionHead)
    device, width = plan.heads.weight.device, power(plan.actor.width, INPUTS)
    nvec = plan.head.nvec
    heads, choices = power(len(nvec)), power(max(nvec))
    choices = power(choices, 16 // heads)  # a product has at least 16 columns
    parts = 1 if dtype == torch.float32 else 3

    def zeros(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=kind, device=device)

    bias = zeros(heads, choices).fill_(-torch.inf)
    bias[len(nvec) :, 0] = 0
    source, start = torch.full((heads, choices), -1, dtype=torch.int32), 0
    for i, count in enumerate(nvec):
        source[i, :count] = torch.arange(start, start + count)
        start += count
    gated = plan.actor.core is not None
    first = zeros(CELL_ROWS + OWN_ROWS, width, kind=dtype)
    packed = Packed(
        plan=plan,
        dtype=dtype,
        heads=len(nvec),
        first=first,
        own=first[CELL_ROWS:],
        first_bias=zeros(width),
        second=zeros(width, width, kind=dtype),
        second_bias=zeros(width),
        gates=zeros(3, width, width, kind=dtype) if gated else None,
        gates_bias=zeros(3, width) if gated else None,
        head=zeros(parts, width, heads * choices, kind=dtype),
        head_bias=bias.flatten(),
        value=zeros(width),
        value_bias=zeros(1),
        choices=choices,
        source=source.flatten().to(device),
    )
    packed.update()
    return packed
