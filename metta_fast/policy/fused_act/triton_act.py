"""One row of a rollout in one Triton kernel: compact observations to actions, log-probabilities and values.

    bytes [n, 387] ─► first layer, decoded in registers ─► ReLU ─► second layer ─► ReLU ─► minGRU ─► heads ─► sampling
                                                              state [n, H], reset [n] ────┘ └──► state

    act = FusedAct(policy, torch.bfloat16)        # if not_in_triton(policy, torch.bfloat16) is None (applies.py)
    act.update()                                  # after the weights have changed
    act(row)                                      # buffers/act_row.py: ActRow

A program takes `rows` rows of the batch from the bytes to the actions. Of a row's 2968 inputs few are not 0 (in the
grid's own game 26 of cells), so the first layer is a sum of few rows of its weights: the inputs that are not 0 are
listed first, in memory that only the program itself uses, and then added up. It is right for any bytes, at most 732
of a row; how long it takes grows with the longest list of a program's rows. (Multiplied by tensor cores as the learner
does, layer_kernels.py, each program would read all of the weights.)

Numbers are those of the network under autocast: products of 16-bit numbers added in float32, each layer's output
rounded to 16 bits, heads in float32 (their weights as sums of three 16-bit ones: exact, as what they multiply is
16-bit already). Differences to it are the order of additions, and that torch may round the heads' products to TF32.
Gates are rounded to 16 bits as the layers are; minGRU's state is float32 (scan.py: `reference`).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from metta_fast.buffers.act_row import ActRow
from metta_fast.policy.fused_act.triton_act_weights import Packed, pack
from metta_fast.policy.grid.triton.decode import CELLS, COMPACT_BYTES, PTX, amount, compact_single

TILE = tl.constexpr(128)
"""The window's cells, the faced cell, and what fills them up to a power of two; the last has weights of 0."""
FACED = tl.constexpr(20)
"""Which of an agent's own bytes starts the faced cell, a cell as the others: columns 39 … 62 of its own."""
OWN = tl.constexpr(40)
"""The other columns of its own: 0 … 38 and 63, in this order."""
ENTRIES = tl.constexpr(736)
"""A row's list: at most 6 inputs of a cell are not 0. After it comes the list of cells that say more than a kind."""
LISTS = tl.constexpr(736 + 128)
"""int32 for both lists of a row: whole lines of the cache."""
ONE = tl.constexpr(0x3F800000)
"""The bits of 1.0."""
BLOCK = 32
"""Most rows of a program: below 64, so that Triton takes a warp's own instructions (mma) and not a warp group's
(wgmma), for which ptxas 12.8, which comes with Triton 3.6, may lose the base of an operand's descriptors: at width 128
the heads were multiplied with other parts of shared memory (12.9 does right by the same PTX).
"""


@triton.jit
def _entry(channel, cell, value, dtype: tl.constexpr):
    """One input that is not 0, as an int32: its weight's row in the lowest 12 bits, above them its value, a float32
    without its lowest 12 bits. A value that was rounded to 16 bits has none there."""
    bits = value.to(dtype).to(tl.float32).to(tl.int32, bitcast=True)
    return (bits & -4096) | (channel * TILE + cell)


@triton.jit
def _place(cell):
    """Where the three bytes of a cell are."""
    return tl.where(cell < CELLS, cell * 3, CELLS * 3 + FACED)


@triton.jit
def _list_kinds(obs, stride, row, n, lists):
    """Write rows' entries of kinds (channels 0 … 14), and the cells that may have other channels.

    Returns how many there are of a row, int32 [rows]: kinds, and 65536 times the cells.
    """
    # Bytes are loaded as [cells, rows]: where neither axis is contiguous Triton lays a warp's lanes along the first,
    # and along a row they touch one or two lines of the cache instead of 32.
    cell = tl.arange(0, TILE)
    there = (cell <= CELLS)[:, None] & (row < n)[None, :]
    at = _place(cell)[:, None] + (row * stride)[None, :]
    kind = tl.load(obs + at, mask=there, other=0).to(tl.int32)
    seen = (kind > 0) & (kind <= 15)
    more = (kind == 1) | ((kind >= 3) & (kind <= 14))
    count = tl.where(seen, 1, 0) | tl.where(more, 65536, 0)
    upto = tl.cumsum(count, 0)
    of_row = (row * LISTS)[None, :]
    entry = ((kind - 1) * TILE + cell[:, None]) | ONE
    tl.store(lists + (of_row + (upto & 65535) - 1), entry, mask=seen)
    cells = cell[:, None] + tl.zeros_like(kind)
    tl.store(lists + (of_row + (upto >> 16) + (ENTRIES - 1)), cells, mask=more)
    return tl.sum(count, 0)


@triton.jit
def _list_rest(obs, stride, row, lists, kinds, cells, dtype: tl.constexpr):
    """Append the entries of channels 15 … 23 to the `kinds` that rows have, from the list of `cells`. How many
    entries a row then has stands where its list of cells began."""
    number = tl.arange(0, 16)
    of_row = (row * LISTS)[:, None]
    total = kinds
    for start in tl.range(0, tl.max(cells, 0), 16, num_stages=1):
        there = (start + number)[None, :] < cells[:, None]
        cell = tl.load(lists + (of_row + ENTRIES + start + number[None, :]), mask=there, other=0)
        at = obs + (_place(cell) + (row * stride)[:, None])
        kind = tl.load(at, mask=there, other=0).to(tl.int32)
        status = tl.load(at + 1, mask=there, other=0).to(tl.int32)
        items = tl.load(at + 2, mask=there, other=0).to(tl.int32)
        flags = status - 1
        agent = (kind == 1) & (status > 0)
        converter = kind >= 3
        group = (flags >> 3) & 15
        first = agent | (converter & (status > 0))
        frozen = agent & ((flags & 4) != 0)
        grouped = agent & (group > 0)
        low = (agent | converter) & ((items & 15) > 0)
        high = (agent | converter) & (items > 15)
        count = first.to(tl.int32) + frozen.to(tl.int32) + grouped.to(tl.int32)
        count += low.to(tl.int32) + high.to(tl.int32)
        to = of_row + total[:, None] + tl.cumsum(count, 1) - count
        facing = 15 + ((flags >> 1) & 1)
        towards = ((flags & 1) * 2 - 1).to(tl.float32)
        entry = _entry(tl.where(agent, facing, 21), cell, tl.where(agent, towards, 1.0), dtype)
        tl.store(lists + to, entry, mask=first)
        to += first.to(tl.int32)
        tl.store(lists + to, (17 * TILE + cell) | ONE, mask=frozen)
        to += frozen.to(tl.int32)
        tl.store(lists + to, _entry(18, cell, group.to(tl.float32) * (1.0 / 15.0), dtype), mask=grouped)
        to += grouped.to(tl.int32)
        channel = tl.where(agent, 19, 22)
        tl.store(lists + to, _entry(channel, cell, amount(items & 15), dtype), mask=low)
        to += low.to(tl.int32)
        tl.store(lists + to, _entry(channel + 1, cell, amount(items >> 4), dtype), mask=high)
        total += tl.sum(count, 1)
    tl.debug_barrier()  # all have read the cells
    tl.store(lists + (row * LISTS + ENTRIES), total)


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
    obs, stride, row, n, lists, w1, w1_own, H: tl.constexpr, B: tl.constexpr, STEP: tl.constexpr,
    HOW: tl.constexpr,
):  # fmt: skip
    """decode(obs) @ weight of B rows, float32 [B, H], without the bias."""
    lane = tl.arange(0, H)
    count = _list_kinds(obs, stride, row, n, lists)
    tl.debug_barrier()  # what one thread has written others read
    _list_rest(obs, stride, row, lists, count & 65535, count >> 16, w1.dtype.element_ty)
    tl.debug_barrier()

    acc = tl.zeros([B, H], tl.float32)
    of_row = lists + row * LISTS
    # Read from memory, as the entries are: each thread gets those of its rows without asking another one.
    total = tl.load(of_row + ENTRIES)
    for start in tl.range(0, tl.max(total, 0), STEP, num_stages=1):
        for i in tl.static_range(STEP):
            entry = tl.load(of_row + (start + i))
            entry = tl.where(start + i < total, entry, TILE - 1)  # 0 times a row of zeros
            weights = tl.load(w1 + ((entry & 4095) * H)[:, None] + lane[None, :])
            value = (entry & -4096).to(tl.float32, bitcast=True)
            acc += value[:, None] * weights.to(tl.float32)
    own = tl.arange(0, 64)
    return acc + _own(obs, stride, row, n, tl.load(w1_own + own[:, None] * H + lane[None, :]), HOW)


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
def _gate(x, weights, bias, part, H: tl.constexpr, HOW: tl.constexpr):
    """One of minGRU's three gates, x [B, H] → [B, H] float32, as 16 bits hold it."""
    lane = tl.arange(0, H)
    w = tl.load(weights + part * H * H + lane[:, None] * H + lane[None, :])
    gate = tl.dot(x, w, input_precision=HOW) + tl.load(bias + part * H + lane)[None, :]
    return gate.to(w.dtype).to(tl.float32)


@triton.jit
def _remember(
    x, state, reset, row, n, weights, bias, H: tl.constexpr, WIDTH: tl.constexpr, HOW: tl.constexpr
):
    """minGRU: x [B, H] → y [B, H] in x's dtype; the rows' states are read and written."""
    lane = tl.arange(0, H)
    there = (row < n)[:, None] & (lane < WIDTH)[None, :]
    place = state + row[:, None] * WIDTH + lane[None, :]
    restart = tl.load(reset + row, mask=row < n, other=1) != 0
    h = tl.where(restart[:, None], 0.0, tl.load(place, mask=there, other=0.0))
    h += tl.sigmoid(_gate(x, weights, bias, 0, H, HOW)) * (_gate(x, weights, bias, 2, H, HOW) - h)
    tl.store(place, h, mask=there)
    skip = x.to(tl.float32)
    return (skip + tl.sigmoid(_gate(x, weights, bias, 1, H, HOW)) * (h - skip)).to(x.dtype)


@triton.jit
def _act_kernel(
    obs, state, reset, noise, action, logprob, value, lists,
    n, stride, w1, w1_own, b1, w2, b2, wg, bg, wh, bh, wv, bv,
    H: tl.constexpr, WIDTH: tl.constexpr, GATED: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr,
    P: tl.constexpr, SPLITS: tl.constexpr,
    SAMPLE: tl.constexpr, HOW: tl.constexpr, STEP: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """B rows from the bytes to the actions. HEADS of W heads are real, each with up to P choices."""
    row = tl.program_id(0) * B + tl.arange(0, B)
    acc = _first(obs, stride, row, n, lists, w1, w1_own, H, B, STEP, HOW)
    kept = row < n
    lane = tl.arange(0, H)
    hidden = _relu(acc + tl.load(b1 + lane)[None, :]).to(w2.dtype.element_ty)
    second = tl.load(w2 + lane[:, None] * H + lane[None, :])
    acc = tl.dot(hidden, second, input_precision=HOW)
    hidden = _relu(acc + tl.load(b2 + lane)[None, :]).to(w2.dtype.element_ty)
    if GATED:
        hidden = _remember(hidden, state, reset, row, n, wg, bg, H, WIDTH, HOW)

    v = tl.sum(hidden.to(tl.float32) * tl.load(wv + lane)[None, :], 1) + tl.load(bv)
    tl.store(value + row, v, mask=kept)
    if SAMPLE:
        column = tl.arange(0, W * P)
        logits = tl.zeros([B, W * P], tl.float32)
        # In a region of its own: of products that follow each other there Triton splits all as it does the last.
        for part in tl.range(SPLITS, num_stages=1):
            heads = tl.load(wh + part * (H * W * P) + lane[:, None] * (W * P) + column[None, :])
            logits = tl.dot(hidden, heads, logits, input_precision=HOW)
        logits = tl.reshape(logits + tl.load(bh + column)[None, :], [B, W, P])
        head = tl.arange(0, W)
        there = kept[:, None] & (head < HEADS)[None, :]
        place = (row * HEADS)[:, None] + head[None, :]
        chosen, logp = _sample(logits, tl.load(noise + place, mask=there, other=0.0))
        tl.store(action + place, chosen, mask=there)
        tl.store(logprob + row, tl.sum(logp, 1), mask=kept)


def fused_act(
    packed: Packed,
    obs: Tensor,
    noise: Tensor | None,
    action: Tensor | None,
    logprob: Tensor | None,
    value: Tensor,
    state: Tensor | None = None,
    reset: Tensor | None = None,
    *,
    rows: int = BLOCK,
    warps: int = 8,
    step: int = 4,
) -> None:
    """Act on n rows; without noise, action and logprob only the values are computed.

    Args:
        obs: [n, 387] uint8; rows may lie apart, the bytes of a row may not.
        noise: [n, W] float32, as for `ActionHead.sample`. action: [n, W] int32. logprob, value: [n] float32. All
            contiguous; the last three are written.
        state, reset: [n, width] float32, written, and [n] bool; of a recurrent policy.
        rows, warps, step: of a program, 16 or 32 rows; how many rows of the weights are on their way at once.
    """
    n = obs.shape[0]
    assert obs.shape[1] == int(COMPACT_BYTES)
    assert obs.stride(1) == 1
    assert rows in (16, BLOCK)
    given = [x for x in (noise, action, logprob) if x is not None]
    assert len(given) in (0, 3)
    if packed.gates is not None:
        assert state is not None
        assert reset is not None
        given += [state, reset]
    assert all(len(x) == n and x.is_contiguous() for x in (*given, value))
    programs = triton.cdiv(n, rows)
    lists = torch.empty(programs * rows, int(LISTS), dtype=torch.int32, device=obs.device)
    width, columns = packed.second.shape[0], packed.head.shape[2]
    _act_kernel[(programs,)](
        obs, state, reset, noise, action, logprob, value, lists, n, obs.stride(0),
        packed.first, packed.own, packed.first_bias, packed.second, packed.second_bias,
        packed.gates, packed.gates_bias, packed.head, packed.head_bias, packed.value, packed.value_bias,
        H=width, WIDTH=packed.plan.actor.width, GATED=packed.gates is not None,
        HEADS=packed.heads, W=columns // packed.choices, P=packed.choices, SPLITS=len(packed.head),
        SAMPLE=action is not None, HOW="ieee", STEP=step, B=rows, num_warps=warps,
        # Two programs of 8 warps on a multiprocessor: one waits for memory while the other adds.
        **({"maxnreg": 128} if PTX.value and width <= 128 else {}),
    )  # fmt: skip


class FusedAct:
    """Computes a rollout's step by `fused_act`, in place of rollout/act.py's ActInto."""

    def __init__(self, policy: nn.Module, dtype: torch.dtype) -> None:
        """policy, dtype: for which `applies.not_in_triton` gives None."""
        self.packed = pack(policy, dtype)

    def update(self) -> None:
        """See `Packed.update`."""
        self.packed.update()

    def __call__(self, row: ActRow) -> None:
        """Act on a row whose observation [1, N, 387] is its only leaf. The state is not touched without a core."""
        (rows,) = row.obs.values()
        memory = () if self.packed.gates is None else (row.state[0], row.reset[0])
        fused_act(self.packed, rows[0], row.noise[0], row.action[0], row.logprob[0], row.value[0], *memory)
