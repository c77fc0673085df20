"""One row of a rollout in one Triton kernel: compact observations to actions, log-probabilities and values.

    bytes [n, 387] ─► first layer, decoded in registers ─► ReLU ─► second layer ─► ReLU ─► heads ─► sampling

    act = FusedAct(policy, torch.bfloat16)        # if supports(policy, torch.bfloat16) is None
    act.update()                                  # after the weights have changed
    act(obs, state, reset, noise, action, logprob, value)

A program takes `rows` rows of the batch from the bytes to the actions; nothing in between leaves it. The first
layer runs over channels (gpu_decode.py), and only over those that some cell of its rows has: which ones is found
while the bytes are read, and the loop takes them from a word of 24 bits.

Numbers are those of the network under autocast: products of 16-bit numbers added in float32, each layer's output
rounded to 16 bits, heads in float32 (their weights as sums of three 16-bit ones: exact, as what they multiply is
16-bit already). Differences to it are the order of additions, and that torch may round the heads' products to TF32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from metta_fast.policy.base import Policy
from metta_fast.policy.encoders import MLPEncoder
from metta_fast.policy.gpu_decode import (
    CELLS,
    COMPACT_BYTES,
    COMPACT_CHANNELS,
    amount,
    compact_single,
)
from metta_fast.policy.grid_layout import LAYOUTS
from metta_fast.policy.network import Network

TILE = tl.constexpr(128)
"""The window's cells, the faced cell, and what fills them up to a power of two."""
FACED = tl.constexpr(20)
"""Which of an agent's own bytes starts the faced cell, a cell as the others: columns 39 … 62 of its own."""
OWN = tl.constexpr(40)
"""The other columns of its own: 0 … 38 and 63, in this order."""
SHIFTS = tl.constexpr(9 | 11 << 5 | 4 << 10 | 5 << 15)
MORE_SHIFTS = tl.constexpr(13 | 17 << 5 | 21 << 10 | 22 << 15 | 26 << 20)
"""Where a cell's word has channels 15 … 18 and 19 … 23: five bits each, lowest first."""
NEUTRAL = tl.constexpr(0b0101 << 9)
"""A word's directions where nothing faces anywhere."""
BLOCK = 32
"""Rows of one product: below 64, so that Triton takes a warp's own instructions (mma) and not a warp group's (wgmma).

With the latter ptxas 12.8, which comes with Triton 3.6, may lose the base of an operand's descriptors: at width 128
the heads were multiplied with other parts of shared memory (12.9 does right by the same PTX). And in loops Triton 3.6
lets a product's left side be overwritten while it is still read (github.com/triton-lang/triton/issues/9433).
"""
MAX_WIDTH = 256
"""Two layers of this width fit a multiprocessor's shared memory."""
MAX_CHOICES = 64
"""Heads times choices, each filled up to a power of two: these logits stay in registers."""


@triton.jit
def _words(kind, status, items):
    """What a compact cell's three bytes say, as one word; bits from the lowest:

        4 kind; agents: 1 frozen, 4 group, 2 rows and 2 columns of the direction faced plus 1, 8 items and lasers;
        converters: 1 busy, 8 what it gives and holds

    A kind above 15 is 0, and so is what does not count; the directions are then 1.
    """
    flags = status - 1
    facing = (0x9164 >> ((flags & 3) * 4)) & 15
    agent = items << 13 | facing << 9 | (flags & 0x7C) << 2
    converter = items << 22 | tl.where(status > 0, 1 << 21, 0) | NEUTRAL
    word = tl.where((kind >= 3) & (kind <= 14), converter, NEUTRAL)
    word = tl.where((kind == 1) & (status > 0), agent, word)
    return word | tl.where(kind <= 15, kind, 0)


@triton.jit
def _field(word, c):
    """The number 0 … 15 that a word has for channel c ≥ 15."""
    shift = (
        tl.where(c < 19, SHIFTS >> (5 * tl.minimum(c - 15, 3)), MORE_SHIFTS >> (5 * tl.maximum(c - 19, 0)))
        & 31
    )
    mask = tl.where(c < 17, 3, tl.where((c == 17) | (c == 21), 1, 15))
    return (word >> shift) & mask


@triton.jit
def _present(word):
    """The channels that some cell of the tile has, as 24 bits."""
    kinds = tl.reduce_or(1 << (word & 15), None)
    others = tl.reduce_or(word, None)
    bits = (kinds & 0xFFFF) >> 1 | tl.where((kinds & 2) > 0, 1 << 15 | 1 << 16, 0)
    for c in tl.static_range(17, 24):
        bits = bits | tl.where(_field(others, c) > 0, 1 << c, 0)
    return bits


@triton.jit
def _lowest(bits):
    """The place of the lowest bit that is set, of a number 1 … 2²⁴ − 1."""
    return ((bits & -bits).to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127


@triton.jit
def _count(bits):
    """How many of 24 bits are set."""
    return tl.sum((bits >> tl.arange(0, 32)) & 1, 0)


@triton.jit
def _feature(word, c):
    """Column c (15 … 23) of cells, float32; c is known only when the kernel runs."""
    number = _field(word, c)
    scale = tl.where(c == 18, 1.0 / 15.0, 1.0)
    offset = tl.where(c < 17, 1.0, 0.0)
    return tl.where((c >= 19) & (c != 21), amount(number), number.to(tl.float32) * scale - offset)


@triton.jit
def _cells(obs, stride, row, n):
    """The words of rows' cells, int32 [rows, TILE]."""
    # Bytes are loaded as [bytes, rows]: where neither axis is contiguous Triton lays a warp's lanes along the first,
    # and along a row they touch one line of the cache instead of 32.
    cell = tl.arange(0, TILE)
    there = (cell <= CELLS)[:, None] & (row < n)[None, :]
    place = tl.where(cell < CELLS, cell * 3, CELLS * 3 + FACED)
    at = obs + place[:, None] + (row * stride)[None, :]
    kind = tl.load(at, mask=there, other=0).to(tl.int32)
    status = tl.load(at + 1, mask=there, other=0).to(tl.int32)
    items = tl.load(at + 2, mask=there, other=0).to(tl.int32)
    return tl.trans(_words(kind, status, items))


@triton.jit
def _own(obs, stride, row, n, weights, HOW: tl.constexpr):
    """The product of rows' own bytes and weights [64, H], float32."""
    own = tl.arange(0, 64)
    column = tl.where(own == OWN - 1, 63, own)[:, None]
    there = (own < OWN)[:, None] & (row < n)[None, :]
    inputs = tl.trans(compact_single(obs + CELLS * 3, (row * stride)[None, :], column, there))
    return tl.dot(inputs.to(weights.dtype), weights, input_precision=HOW)


@triton.jit
def _first(
    obs, stride, row, n, w1, w1_own, H: tl.constexpr, B: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr,
    HOW: tl.constexpr,
):  # fmt: skip
    """decode(obs) @ weight of B rows from `row` on and, of two PARTS, of the B rows after them, without the bias:
    two times [B, H] float32 (of one part the second is the first)."""
    own = tl.arange(0, 64)
    lane = tl.arange(0, H)
    own_weights = tl.load(w1_own + own[:, None] * H + lane[None, :])
    word = _cells(obs, stride, row, n)
    present = _present(word)
    acc = _own(obs, stride, row, n, own_weights, HOW)
    if PARTS == 2:
        word_2 = _cells(obs, stride, row + B, n)
        present = present | _present(word_2)
        acc_2 = _own(obs, stride, row + B, n, own_weights, HOW)

    one = tl.full([B, TILE], 1.0, w1.dtype.element_ty)
    zero = tl.full([B, TILE], 0.0, w1.dtype.element_ty)
    tile = w1 + tl.arange(0, TILE)[:, None] * H + lane[None, :]
    bits = present & 0x7FFF
    for _ in tl.range(0, _count(bits), num_stages=STAGES):
        channel = _lowest(bits)
        weights = tl.load(tile + channel * (TILE * H))
        acc = tl.dot(tl.where((word & 15) == channel + 1, one, zero), weights, acc, input_precision=HOW)
        if PARTS == 2:
            hot = tl.where((word_2 & 15) == channel + 1, one, zero)
            acc_2 = tl.dot(hot, weights, acc_2, input_precision=HOW)
        bits = bits & (bits - 1)
    bits = present & 0xFF8000
    for _ in tl.range(0, _count(bits), num_stages=STAGES):
        channel = _lowest(bits)
        weights = tl.load(tile + channel * (TILE * H))
        acc = tl.dot(_feature(word, channel).to(weights.dtype), weights, acc, input_precision=HOW)
        if PARTS == 2:
            acc_2 = tl.dot(_feature(word_2, channel).to(weights.dtype), weights, acc_2, input_precision=HOW)
        bits = bits & (bits - 1)
    if PARTS == 2:
        return acc, acc_2
    else:
        return acc, acc


@triton.jit
def _sample(logits, u):
    """Inverse CDF as ActionHead.sample: logits [B, W, P], u [B, W] → action [B, W] int32, logprob [B, W]."""
    choice = tl.arange(0, logits.shape[2])[None, None, :]
    most = tl.max(logits, 2)[:, :, None]
    logp = logits - (most + tl.log(tl.sum(tl.exp(logits - most), 2))[:, :, None])
    p = tl.exp(logp)
    # Sums of a scan may fall by a rounding, so a choice without probability is passed over by name.
    possible = p > 0
    last = tl.max(tl.where(possible, choice, 0), 2)
    reached = possible & (tl.cumsum(p, 2) > (u * tl.sum(p, 2))[:, :, None])
    action = tl.min(tl.where(reached, choice, last[:, :, None]), 2)
    return action, tl.sum(tl.where(choice == action[:, :, None], logp, 0.0), 2)


@triton.jit
def _relu(x):
    """NaN stays NaN, so that it is seen."""
    return tl.where(x < 0.0, 0.0, x)


@triton.jit
def _finish(
    acc, row, noise, action, logprob, value, n, b1, w2, b2, wh, bh, wv, bv,
    H: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr, P: tl.constexpr, SPLITS: tl.constexpr,
    SAMPLE: tl.constexpr, HOW: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """From the first layer's sums [B, H] of rows to their actions."""
    kept = row < n
    lane = tl.arange(0, H)
    hidden = _relu(acc + tl.load(b1 + lane)[None, :]).to(w2.dtype.element_ty)
    second = tl.load(w2 + lane[:, None] * H + lane[None, :])
    acc = tl.dot(hidden, second, input_precision=HOW)
    hidden = _relu(acc + tl.load(b2 + lane)[None, :]).to(w2.dtype.element_ty)

    v = tl.sum(hidden.to(tl.float32) * tl.load(wv + lane)[None, :], 1) + tl.load(bv)
    tl.store(value + row, v, mask=kept)
    if SAMPLE:
        column = tl.arange(0, W * P)
        logits = tl.zeros([B, W * P], tl.float32)
        for part in tl.static_range(SPLITS):
            heads = tl.load(wh + part * (H * W * P) + lane[:, None] * (W * P) + column[None, :])
            logits = tl.dot(hidden, heads, logits, input_precision=HOW)
        logits = tl.reshape(logits + tl.load(bh + column)[None, :], [B, W, P])
        head = tl.arange(0, W)
        there = kept[:, None] & (head < HEADS)[None, :]
        place = (row * HEADS)[:, None] + head[None, :]
        chosen, logp = _sample(logits, tl.load(noise + place, mask=there, other=0.0))
        tl.store(action + place, chosen, mask=there)
        tl.store(logprob + row, tl.sum(logp, 1), mask=kept)


@triton.jit
def _act_kernel(
    obs, noise, action, logprob, value,
    n, stride, w1, w1_own, b1, w2, b2, wh, bh, wv, bv,
    H: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr, P: tl.constexpr, SPLITS: tl.constexpr,
    SAMPLE: tl.constexpr, HOW: tl.constexpr, STAGES: tl.constexpr, B: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """PARTS times B rows from the bytes to the actions. HEADS of W heads are real, each with up to P choices."""
    row = tl.program_id(0) * (B * PARTS) + tl.arange(0, B)
    acc, acc_2 = _first(obs, stride, row, n, w1, w1_own, H, B, PARTS, STAGES, HOW)
    _finish(
        acc, row, noise, action, logprob, value, n, b1, w2, b2, wh, bh, wv, bv,
        H, HEADS, W, P, SPLITS, SAMPLE, HOW, B,
    )  # fmt: skip
    if PARTS == 2:
        _finish(
            acc_2, row + B, noise, action, logprob, value, n, b1, w2, b2, wh, bh, wv, bv,
            H, HEADS, W, P, SPLITS, SAMPLE, HOW, B,
        )  # fmt: skip


@dataclass
class Packed:
    """A policy's weights as the kernel reads them, in memory of their own: their addresses never change.

    H is the width, filled up to a power of two; W heads of P choices likewise. Of what is filled up, weights are 0
    and a choice's bias is −inf (a head's first choice: 0).
    """

    policy: Network
    dtype: torch.dtype
    heads: int
    first: Tensor
    """[24, 128, H]: a channel's rows, one for each cell."""
    own: Tensor
    """[64, H]."""
    first_bias: Tensor
    """[H] float32."""
    second: Tensor
    """[H, H], inputs first."""
    second_bias: Tensor
    """[H] float32, rounded to dtype as autocast does."""
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

    @torch.no_grad()
    def update(self) -> None:
        """Read the policy's weights again. On the device only: it may be part of a CUDA graph."""
        layer, second, out = _layers(self.policy)
        width, cells = second.weight.shape[0], int(CELLS)
        channels = int(COMPACT_CHANNELS)
        rows = layer.weight[: cells * channels].view(cells, channels, width)
        self.first[:, :cells, :width].copy_(rows.transpose(0, 1))
        own, others = layer.weight[cells * channels :], int(OWN) - 1
        self.first[:, cells, :width].copy_(own[others : others + channels])
        self.own[:others, :width].copy_(own[:others])
        self.own[others, :width].copy_(own[-1])
        self.first_bias[:width].copy_(layer.bias)
        self.second[:width, :width].copy_(second.weight.t())
        self.second_bias[:width].copy_(second.bias.to(self.dtype))
        start = 0
        for i, count in enumerate(self.policy.head.nvec):
            left = out.weight[start : start + count].t()
            at = slice(i * self.choices, i * self.choices + count)
            for part in self.head:
                part[:width, at].copy_(left)
                left = left - part[:width, at].float()
            self.head_bias[at].copy_(out.bias[start : start + count])
            start += count
        self.value[:width].copy_(out.weight[-1])
        self.value_bias.copy_(out.bias[-1:])


def _layers(policy: Network) -> tuple[Any, Any, Any]:
    """First layer, second layer, heads."""
    encoder: Any = policy.encoder
    (layer,) = encoder.parts.values()
    return layer, encoder.second, policy.heads


def _power(n: int, least: int = 1) -> int:
    return max(least, triton.next_power_of_2(n))


def supports(policy: Policy, dtype: torch.dtype) -> str | None:
    """Why this policy's rollout cannot run in the kernel with layers in `dtype`, or None."""
    if type(policy) is not Network:
        return f"a policy of class {type(policy).__name__}"
    if policy.core is not None:
        return "a policy with memory"
    encoder = policy.encoder
    if not isinstance(encoder, MLPEncoder):
        return f"the encoder {type(encoder).__name__}"
    parts: Any = encoder.parts.values()
    if encoder.flat or [x.layout for x in parts] != [LAYOUTS["compact"]]:
        return "observations other than compact ones alone"
    width = encoder.second.weight.shape[0]
    if width > MAX_WIDTH:
        return f"policy.hidden_size={width}, above {MAX_WIDTH}"
    nvec = policy.head.nvec
    if _power(len(nvec)) * _power(max(nvec)) > MAX_CHOICES:
        return f"{len(nvec)} action heads of up to {max(nvec)} choices"
    if dtype not in (torch.bfloat16, torch.float16):
        return "layers in float32 (trainer.precision)"
    return None


def pack(policy: Network, dtype: torch.dtype) -> Packed:
    """The weights for `fused_act`, on the policy's device.

    Args:
        policy: one that `supports` gives None for.
        dtype: of the layers' products and outputs: autocast's.
    """
    second = _layers(policy)[1]
    device, width = second.weight.device, _power(second.weight.shape[0], 16)
    nvec = policy.head.nvec
    heads, choices = _power(len(nvec)), _power(max(nvec))
    choices = _power(choices, 16 // heads)  # a product has at least 16 columns
    parts = 1 if dtype == torch.float32 else 3

    def zeros(*shape: int, kind: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=kind, device=device)

    bias = zeros(heads, choices).fill_(-torch.inf)
    bias[len(nvec) :, 0] = 0
    packed = Packed(
        policy=policy,
        dtype=dtype,
        heads=len(nvec),
        first=zeros(int(COMPACT_CHANNELS), int(TILE), width, kind=dtype),
        own=zeros(64, width, kind=dtype),
        first_bias=zeros(width),
        second=zeros(width, width, kind=dtype),
        second_bias=zeros(width),
        head=zeros(parts, width, heads * choices, kind=dtype),
        head_bias=bias.flatten(),
        value=zeros(width),
        value_bias=zeros(1),
        choices=choices,
    )
    packed.update()
    return packed


def fused_act(
    packed: Packed,
    obs: Tensor,
    noise: Tensor | None,
    action: Tensor | None,
    logprob: Tensor | None,
    value: Tensor,
    *,
    rows: int | None = None,
    warps: int = 8,
    stages: int = 3,
) -> None:
    """Act on n rows; without noise, action and logprob only the values are computed.

    Args:
        obs: [n, 387] uint8; rows may lie apart, the bytes of a row may not.
        noise: [n, W] float32, as for `ActionHead.sample`. action: [n, W] int32. logprob, value: [n] float32. All
            contiguous; the last three are written.
        rows, warps, stages: of a program, 16, 32 or 64 rows (None: what registers hold); how many tiles of the weights
            are on their way at once.
    """
    n = obs.shape[0]
    assert obs.shape[1] == int(COMPACT_BYTES)
    assert obs.stride(1) == 1
    given = [x for x in (noise, action, logprob) if x is not None]
    assert len(given) in (0, 3)
    assert all(len(x) == n and x.is_contiguous() for x in (*given, value))
    width, columns = packed.second.shape[0], packed.head.shape[2]
    stages = min(stages, 3 if width <= 128 else 2)  # what shared memory holds
    rows = rows or (2 * BLOCK if width <= 128 else BLOCK)
    block = min(rows, BLOCK)
    assert rows in (block, 2 * block)
    _act_kernel[(triton.cdiv(n, rows),)](
        obs, noise, action, logprob, value, n, obs.stride(0),
        packed.first, packed.own, packed.first_bias, packed.second, packed.second_bias,
        packed.head, packed.head_bias, packed.value, packed.value_bias,
        H=width, HEADS=packed.heads, W=columns // packed.choices, P=packed.choices, SPLITS=len(packed.head),
        SAMPLE=action is not None, HOW="ieee", STAGES=stages, B=block,
        PARTS=rows // block, num_warps=warps,
    )  # fmt: skip


class FusedAct:
    """`fused_act` in the place of a rollout's step (ppo/device_rollout.py: ActInto)."""

    def __init__(self, policy: Network, dtype: torch.dtype) -> None:
        self.packed = pack(policy, dtype)

    def update(self) -> None:
        """See `Packed.update`."""
        self.packed.update()

    def __call__(
        self,
        obs: dict[str, Tensor],
        state: Tensor,
        reset: Tensor,
        noise: Tensor,
        action: Tensor,
        logprob: Tensor,
        value: Tensor,
    ) -> None:
        """obs {leaf: [1, N, 387]}, noise [1, N, W] → action [1, N, W], logprob, value [1, N]; without memory, state
        and reset are not read."""
        (rows,) = obs.values()
        fused_act(self.packed, rows[0], noise[0], action[0], logprob[0], value[0])
