"""Runs one row of a rollout in one Triton kernel: compact observations to actions, log-probabilities and values.

    bytes [n, 387] ─► first layer, decoded in registers ─► ReLU ─► second layer ─► ReLU ─► minGRU ─► heads ─► sampling
                                                              state [n, H], reset [n] ────┘ └──► state

    act = FusedAct(policy, torch.bfloat16)        # if not_in_triton(policy, torch.bfloat16) is None (applies.py)
    act.update()                                  # after the weights have changed
    act(row)                                      # buffers/act_row.py: ActRow

A program computes `rows` rows of the batch, from the bytes to the actions. Few of a row's 2968 inputs are nonzero (in
the grid's own game, 26 from cells), so the first layer is a sum of few rows of its weights: the program lists the
nonzero inputs in its own memory, then adds up their rows. It is correct for any bytes, with at most 732 entries per
row; its time grows with the longest list among the program's rows. (With tensor cores, as in the learner's
layer_kernels.py, each program would read all of the weights.)

Numbers are those of the network under autocast: products of 16-bit numbers added in float32, each layer's output
rounded to 16 bits, heads in float32 (their weights as sums of three 16-bit numbers: exact, because their inputs are
16-bit). It differs from torch in the order of additions, and torch may round the heads' products to TF32. Gates are
rounded to 16 bits, as layers are; minGRU's state is float32 (scan.py: `reference`).
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
"""The window's cells, the faced cell, and padding up to a power of two; the padding's weights are 0."""
FACED = tl.constexpr(20)
"""Index of the agent's own byte where the faced cell starts (a cell like the others): own columns 39 … 62."""
OWN = tl.constexpr(40)
"""The agent's other own columns: 0 … 38 and 63, in this order."""
ENTRIES = tl.constexpr(736)
"""Length of a row's list: a cell has at most 6 nonzero inputs. The list of cells with more than a kind follows it."""
LISTS = tl.constexpr(736 + 128)
"""int32 entries for both lists of a row: whole cache lines."""
ONE = tl.constexpr(0x3F800000)
"""The bits of 1.0."""
BLOCK = 32
"""Most rows per program: below 64, so that Triton uses a warp's instructions (mma) instead of a warp group's (wgmma).
For wgmma, ptxas 12.8, which comes with Triton 3.6, may lose the base of an operand's descriptors: at width 128 the
heads were multiplied with other parts of shared memory (12.9 compiles the same PTX correctly).
"""


@triton.jit
def _entry(channel, cell, value, dtype: tl.constexpr):
    """Packs a nonzero input into an int32: its weight's row in the lowest 12 bits, and above them its value, a float32
    without its lowest 12 bits (those are 0 in a value rounded to 16 bits)."""
    bits = value.to(dtype).to(tl.float32).to(tl.int32, bitcast=True)
    return (bits & -4096) | (channel * TILE + cell)


@triton.jit
def _place(cell):
    """Returns the positions of a cell's three bytes."""
    return tl.where(cell < CELLS, cell * 3, CELLS * 3 + FACED)


@triton.jit
def _list_kinds(obs, stride, row, n, lists):
    """Writes rows' entries of kinds (channels 0 … 14), and the cells that may have other channels.

    Returns a row's counts, int32 [rows]: kinds + 65536 · cells.
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
    """Appends the entries of channels 15 … 23, from the list of `cells`, to the rows' `kinds` entries. A row's total
    count is written where its list of cells began."""
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
    """Returns the product of rows' own bytes and weights [64, H], float32."""
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
    """Returns decode(obs) @ weight of B rows, float32 [B, H], without the bias."""
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
    """Samples by inverse CDF, as ActionHead.sample: logits [B, W, P], u [B, W] → action [B, W] int32,
    logprob [B, W]."""
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
    """Computes one of minGRU's three gates, x [B, H] → [B, H] float32, rounded to 16 bits."""
    lane = tl.arange(0, H)
    w = tl.load(weights + part * H * H + lane[:, None] * H + lane[None, :])
    gate = tl.dot(x, w, input_precision=HOW) + tl.load(bias + part * H + lane)[None, :]
    return gate.to(w.dtype).to(tl.float32)


@triton.jit
def _remember(
    x, state, reset, row, n, weights, bias, H: tl.constexpr, WIDTH: tl.constexpr, HOW: tl.constexpr
):
    """Runs minGRU, x [B, H] → y [B, H] in x's dtype; reads and writes the rows' states."""
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
    """Computes B rows from the bytes to the actions. HEADS of the W heads are real, each with up to P choices."""
    # All rows are counted from the program's first: offsets of 2.5 million rows' lists take more than 32 bits.
    first = tl.program_id(0).to(tl.int64) * B
    row = tl.arange(0, B)
    n -= tl.program_id(0) * B
    obs += first * stride
    lists += first * LISTS
    value += first
    if GATED:
        state += first * WIDTH
        reset += first
    if SAMPLE:
        noise += first * HEADS
        action += first * HEADS
        logprob += first
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
    """Acts on n rows. Without noise, action and logprob, only the values are computed.

    Args:
        obs: [n, 387] uint8; each row is contiguous, but rows may be strided.
        noise: [n, W] float32, as for `ActionHead.sample`. action: [n, W] int32. logprob, value: [n] float32. All
            contiguous; the last three are written.
        state, reset: [n, width] float32, written, and [n] bool; of a recurrent policy.
        rows, warps: per program, 16 or 32 rows. step: number of weight rows loaded at once.
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
        """policy, dtype: `applies.not_in_triton` must return None for them."""
        self.packed = pack(policy, dtype)

    def update(self) -> None:
        """See `Packed.update`."""
        self.packed.update()

    def __call__(self, row: ActRow) -> None:
        """Acts on a row whose observation [1, N, 387] is its only leaf. Without a core, the state is not changed."""
        (rows,) = row.obs.values()
        memory = () if self.packed.gates is None else (row.state[0], row.reset[0])
        fused_act(self.packed, rows[0], row.noise[0], row.action[0], row.logprob[0], row.value[0], *memory)
