"""Defines the Triton kernels from a policy's first layer, or its core, to the loss and back (loss_and_backward.py).

    gather   programs over rows: which rows of the buffers; partial moments of their advantages
    tail     programs over one tile of rows or several: forward, loss, backward; what belongs to no row is added up
             ─► gradient of x, one line of partial sums a program
    finish   programs over columns of these lines: gradients of weights, statistics, loss

Columns of the partial sums: 8 statistics (5 used), second layer's weight [H, H], heads [H, C], second layer's bias [H],
heads' bias [C]; after a core without those of the second layer. A line of the heads has C = W · P columns: head w's
choice i at w · P + i, the value in the last. `source` [C] names each column's row of the heads' weight, −1: none; its
logit is then `empty` [C], 0 or −inf.

Sums are in a fixed order: the same minibatch results in the same bits.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import triton
import triton.language as tl

from metta_fast.algorithms.ppo.loss_terms import EPSILON, LEAST_DEVIATION

TINY = tl.constexpr(EPSILON)
LEAST = tl.constexpr(LEAST_DEVIATION)
STATISTICS = tl.constexpr(8)
"""Columns for the statistics at the start of a line of partial sums."""


@triton.jit
def gather_kernel(
    order, mask, advantage, rows, moments, count, segments, agents, length, parts, BLOCK: tl.constexpr
):
    """rows [count]: t · agents + n, time-major, of the segments order [segments] of `length` rows each;
    moments [3, parts]: unmasked rows of a program, the mean of their advantages, sum of squared deviations."""
    part = tl.program_id(0)
    i = part * BLOCK + tl.arange(0, BLOCK)
    there = i < count
    segment = tl.load(order + i % segments, mask=there, other=0)
    row = (i // segments + segment // agents * length) * agents + segment % agents
    tl.store(rows + i, row, mask=there)
    live = there & (tl.load(mask + row, mask=there, other=0) != 0)
    a = tl.load(advantage + row, mask=live, other=0.0)
    n = tl.sum(live.to(tl.float32), 0)
    mean = tl.sum(a, 0) / tl.maximum(n, 1.0)
    mean += tl.sum(tl.where(live, a - mean, 0.0), 0) / tl.maximum(n, 1.0)  # without its own rounding
    centred = tl.where(live, a - mean, 0.0)
    tl.store(moments + part, n)
    tl.store(moments + parts + part, mean)
    tl.store(moments + 2 * parts + part, tl.sum(centred * centred, 0))


@triton.jit
def all_moments(moments, parts, PARTS: tl.constexpr):
    """1 / unmasked rows, mean and 1 / standard deviation of the minibatch's advantages."""
    i = tl.arange(0, PARTS)
    inside = i < parts
    n = tl.load(moments + i, mask=inside, other=0.0)
    means = tl.load(moments + parts + i, mask=inside, other=0.0)
    squares = tl.load(moments + 2 * parts + i, mask=inside, other=0.0)
    share = 1.0 / tl.maximum(tl.sum(n, 0), 1.0)
    mean = tl.sum(n * means, 0) * share
    mean += tl.sum(n * (means - mean), 0) * share
    off = means - mean
    variance = tl.sum(squares + n * off * off, 0) * share
    return share, mean, 1.0 / (tl.maximum(tl.sqrt(variance), LEAST * tl.abs(mean)) + TINY)


@triton.jit
def times(a, b, acc, HOW: tl.constexpr):
    """a @ b + acc."""
    return tl.dot(a, b, acc, input_precision=HOW)


@triton.jit
def relu(x):
    """NaN stays NaN, so that it is seen."""
    return tl.where(x <= 0.0, 0.0, x)


@triton.jit
def tail_kernel(
    x, rows, weight, moments, mask, action, logprob, value, advantage, returns,
    second, second_bias, heads, heads_bias, source, empty, grad_x, partials,
    clip_coef, count, segments, parts, line, vf_clip, vf_coef, entropy_coef,
    H: tl.constexpr, SECOND: tl.constexpr, HEADS: tl.constexpr, W: tl.constexpr, P: tl.constexpr, PARTS: tl.constexpr,
    NORMALIZE: tl.constexpr, CLIP_VALUE: tl.constexpr, WEIGHTED: tl.constexpr, SPLIT: tl.constexpr,
    HOW: tl.constexpr, TILES: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Computes loss and gradients of TILES tiles of B rows. It is one long function because a tile's numbers stay in
    registers from the first product to the last gradient.

    SECOND: x is the first layer's output, and the second layer is computed here; else x is what the heads read, and
    `second` is not used. SPLIT: layers are 16-bit, and the heads' float32 weights a sum of three such
    numbers.

    128 rows and 8 warps: Triton gives 16 lines to each warp in a chain of products, so fewer rows would be computed
    twice. Every product is waited for where it is (wait_group 0); none of them shares a left factor kept in registers.
    With one tile nothing spills (255 registers); with more some 60 registers of addresses do.
    """
    C: tl.constexpr = W * P
    kind: tl.constexpr = x.dtype.element_ty
    program = tl.program_id(0)
    lane = tl.arange(0, H)
    column = tl.arange(0, C)
    head = tl.arange(0, W)
    choice = tl.arange(0, P)[None, None, :]
    is_value = (column == C - 1)[None, :]

    share, mean, scale = all_moments(moments, parts, PARTS)
    if SECOND:
        matrix = tl.load(second + lane[:, None] * H + lane[None, :]).to(kind)  # [out, in]
    of = tl.load(source + column)
    known = of >= 0
    out_matrix = tl.load(heads + of[None, :] * H + lane[:, None], mask=known[None, :], other=0.0)  # [H, C]
    rounded = out_matrix.to(kind)
    if SPLIT:  # one product, not three: columns 4 c … 4 c + 3 add up to column c
        rest = out_matrix - rounded.to(tl.float32)
        low_bits = rest.to(kind)
        lowest = (rest - low_bits.to(tl.float32)).to(kind)
        parts_of = tl.join(tl.join(rounded, lowest), tl.join(low_bits, tl.zeros_like(lowest)))
        parts_of = tl.reshape(parts_of, [H, 4 * C])

    # What is added up over the rows: in memory between tiles, as it would fill half of the registers.
    to = partials + program * line
    S: tl.constexpr = H if SECOND else 0
    to_second = to + STATISTICS + lane[:, None] * H + lane[None, :]
    to_heads = to + STATISTICS + S * H + lane[:, None] * C + column[None, :]
    to_second_bias = to + STATISTICS + S * H + H * C + lane
    to_heads_bias = to + STATISTICS + S * H + H * C + S + column
    sum_policy = tl.zeros([B], tl.float32)
    sum_value = tl.zeros([B], tl.float32)
    sum_entropy = tl.zeros([B], tl.float32)
    sum_kl = tl.zeros([B], tl.float32)
    sum_clipped = tl.zeros([B], tl.float32)

    for tile in tl.range(0, TILES, num_stages=1, disable_licm=True):
        more = tile > 0
        i = (program * TILES + tile) * B + tl.arange(0, B)
        there = i < count
        row = tl.load(rows + i, mask=there, other=0)
        at = i[:, None] * H + lane[None, :]
        given = tl.load(x + at, mask=there[:, None], other=0.0)
        live = there & (tl.load(mask + row, mask=there, other=0) != 0)
        old_logprob = tl.load(logprob + row, mask=there, other=0.0)
        target = tl.load(returns + row, mask=there, other=0.0)
        gain = tl.load(advantage + row, mask=there, other=0.0)
        taken = tl.load(
            action + row[:, None] * HEADS + head[None, :],
            mask=there[:, None] & (head < HEADS)[None, :],
            other=0,
        )
        if NORMALIZE:
            gain = (gain - mean) * scale
        if WEIGHTED:
            gain = gain * tl.load(weight + i % segments, mask=there, other=0.0)

        # ---- forward ----
        zero = tl.zeros([B, H], tl.float32)
        if SECOND:
            hidden = relu(given)
            bias = tl.load(second_bias + lane).to(kind).to(tl.float32)[None, :]
            hidden_2 = relu(times(hidden, tl.trans(matrix), zero, HOW) + bias).to(kind)
        else:
            hidden_2 = given
        if SPLIT:
            acc = times(hidden_2, parts_of, tl.zeros([B, 4 * C], tl.float32), HOW)
            acc = tl.sum(tl.reshape(acc, [B, C, 4]), 2)
        else:
            acc = times(hidden_2, rounded, tl.zeros([B, C], tl.float32), HOW)
        out_bias = tl.load(heads_bias + of, mask=known, other=0.0) + tl.load(empty + column)
        out = acc + out_bias[None, :]
        v = tl.sum(tl.where(is_value, out, 0.0), 1)
        logits = tl.reshape(tl.where(is_value, -float("inf"), out), [B, W, P])
        most = tl.max(logits, 2)
        total = tl.sum(tl.exp(logits - most[:, :, None]), 2)
        logp = logits - (most + tl.log(total))[:, :, None]
        p = tl.exp(logp)
        p_logp = tl.where(logp == -float("inf"), 0.0, p * logp)
        entropies = -tl.sum(p_logp, 2)
        entropy = tl.sum(entropies, 1)
        chosen = choice == taken[:, :, None]
        new_logprob = tl.sum(tl.sum(tl.where(chosen, logp, 0.0), 2), 1)

        # ---- loss ----
        clip = tl.load(clip_coef)  # here: it would take a register all along
        low, high = 1.0 - clip, 1.0 + clip
        log_ratio = tl.where(live, new_logprob - old_logprob, 0.0)
        ratio = tl.exp(log_ratio)
        gained = ratio * gain
        clipped = tl.where(ratio < low, low, tl.where(ratio > high, high, ratio)) * gain
        within = (ratio >= low) & (ratio <= high)
        sum_policy -= tl.where(live, tl.where(clipped < gained, clipped, gained), 0.0)
        d_logprob = -share * tl.where(within | (gained < clipped), gain, 0.0) * ratio
        sum_kl += tl.where(live, ratio - 1.0 - log_ratio, 0.0)
        sum_clipped += tl.where(live & (tl.abs(ratio - 1.0) > clip), 1.0, 0.0)
        sum_entropy += tl.where(live, entropy, 0.0)

        off = v - target
        error = off * off
        d_value = off
        if CLIP_VALUE:
            old = tl.load(value + row, mask=there, other=0.0)
            moved = v - old
            limited = tl.where(moved < -vf_clip, -vf_clip, tl.where(moved > vf_clip, vf_clip, moved))
            near = old + limited - target
            d_value = tl.where((limited == moved) | (error >= near * near), off, tl.where(v == v, 0.0, v))
            error = tl.where(near * near > error, near * near, error)
        sum_value += tl.where(live, 0.5 * error, 0.0)
        d_value = vf_coef * share * d_value

        # ---- backward ----
        d_logits = d_logprob[:, None, None] * (tl.where(chosen, 1.0, 0.0) - p)
        d_logits += (entropy_coef * share) * (p_logp + p * entropies[:, :, None])
        d_out = tl.where(is_value, d_value[:, None], tl.reshape(d_logits, [B, C]))
        d_out = tl.where(live[:, None], d_out, 0.0)
        before = tl.load(to_heads_bias, mask=more, other=0.0)
        tl.store(to_heads_bias, before + tl.sum(d_out, 0))
        d_out = d_out.to(kind)
        if (
            not SECOND
        ):  # before the product that follows: after it ptxas 12.8 forgets where that one's factor lies
            tl.store(grad_x + at, times(d_out, tl.trans(rounded), zero, HOW).to(kind), mask=there[:, None])
        before = tl.load(to_heads, mask=more, other=0.0)
        tl.store(to_heads, times(tl.trans(hidden_2), d_out, before, HOW))
        if SECOND:
            d_hidden = times(d_out, tl.trans(rounded), zero, HOW)
            d_hidden = tl.where(hidden_2 <= 0.0, 0.0, d_hidden).to(kind)
            before = tl.load(to_second_bias, mask=more, other=0.0)
            tl.store(to_second_bias, before + tl.sum(d_hidden.to(tl.float32), 0))
            before = tl.load(to_second, mask=more, other=0.0)
            tl.store(to_second, times(tl.trans(d_hidden), hidden, before, HOW))
            d_x = times(d_hidden, matrix, zero, HOW)
            # Read again rather than kept in registers; asked for differently, lest the compiler makes one load of both.
            again = tl.load(x + at, mask=there[:, None], other=0.0, eviction_policy="evict_first")
            tl.store(grad_x + at, tl.where(again <= 0.0, 0.0, d_x.to(kind)), mask=there[:, None])
        tl.debug_barrier()  # sums of this tile are written before any thread reads them

    tl.store(to + 0, tl.sum(sum_policy, 0) * share)
    tl.store(to + 1, tl.sum(sum_value, 0) * share)
    tl.store(to + 2, tl.sum(sum_entropy, 0) * share)
    tl.store(to + 3, tl.sum(sum_kl, 0) * share)
    tl.store(to + 4, tl.sum(sum_clipped, 0) * share)


@triton.jit
def finish_kernel(
    partials, source, grad_second, grad_second_bias, grad_heads, grad_heads_bias, stats, loss,
    programs, line, vf_coef, entropy_coef,
    H: tl.constexpr, SECOND: tl.constexpr, C: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums over the programs of BLOCK columns of the partial sums, stored where they belong."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    program = tl.arange(0, PROGRAMS)
    S: tl.constexpr = H if SECOND else 0
    there = (program < programs)[:, None] & (at < STATISTICS + S * H + H * C + S + C)[None, :]
    total = tl.sum(tl.load(partials + program[:, None] * line + at[None, :], mask=there, other=0.0), 0)
    if tl.program_id(0) == 0:
        tl.store(stats + at, total, mask=at < 5)
        coefficient = tl.where(
            at == 0, 1.0, tl.where(at == 1, vf_coef, tl.where(at == 2, -entropy_coef, 0.0))
        )
        tl.store(loss, tl.sum(tl.where(at < 3, coefficient * total, 0.0), 0))
    at -= STATISTICS
    if SECOND:
        tl.store(grad_second + at, total, mask=(at >= 0) & (at < H * H))
        at -= H * H
    here = (at >= 0) & (at < H * C)
    of = tl.load(source + at % C, mask=here, other=-1)
    tl.store(grad_heads + of * H + at // C, total, mask=here & (of >= 0))
    at -= H * C
    if SECOND:
        tl.store(grad_second_bias + at, total, mask=(at >= 0) & (at < H))
        at -= H
    here = (at >= 0) & (at < C)
    of = tl.load(source + at, mask=here, other=-1)
    tl.store(grad_heads_bias + of, total, mask=here & (of >= 0))
