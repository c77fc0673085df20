"""Computes a rollout's summary on the GPU with two Triton kernels in place of about sixty of torch's (summary.py).

    summarize  programs (block of agents) × (returns | faults | one statistic); each walks through time in registers
               ─► partials [columns, blocks] float64, and the running totals of unfinished episodes
    finish     programs (block of agents) × (chunk of rows): one column's sum ─► figures, reward · scale

    columns    rows | episodes, return, length, *stats | faults of reward, log-probability, value
               | Σd, Σd², rewards that are not 0, Σ reward²

All columns except the last four are the first entries of `figures`. d = R − mean before, for the variance of the
discounted return R (reward_scale.py). Sums are float64 and in a fixed order: the same rollout results in the same
bits.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import EnvSpec
from metta_fast.rollout.episode_stats import EpisodeStats
from metta_fast.rollout.reward_scale import EPSILON, MOMENTS, MOST, RewardScale

BLOCKS = 256
"""Largest number of blocks of agents: `finish` reads a column of partials at once."""
SCALES = tl.constexpr(4)
"""Columns for the reward scale at the end of the partials."""
NUMBERS = tl.constexpr(MOMENTS)
CHUNK = 32
"""Rows that one program of `finish` scales."""


@triton.jit
def not_finite(x):
    """Returns 1 where x is NaN or infinite, else 0."""
    return (~(tl.abs(x) < float("inf"))).to(tl.int32)


@triton.jit
def walk_returns(
    mask, reward, terminal, truncation, returns, lengths, left_out, next_left_out, discounted, moments, before,
    partials, columns, blocks, agents, gamma,
    HORIZON: tl.constexpr, NORMALIZE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums rows, episodes, their returns and lengths, and the discounted return of one block of agents.

    It is one long function because it is one Triton kernel: a block's running sums stay in registers from the first
    row to the last.
    """
    block = tl.program_id(0)
    n = block * BLOCK + tl.arange(0, BLOCK)
    inside = n < agents
    at = n.to(tl.int64)
    total = tl.load(returns + n, mask=inside, other=0.0)
    length = tl.load(lengths + n, mask=inside, other=0)
    skipped = tl.load(left_out + n, mask=inside, other=0) != 0
    running = tl.zeros([BLOCK], tl.float32)
    shift = 0.0
    if NORMALIZE:
        running = tl.load(discounted + n, mask=inside, other=0.0)
        shift = tl.load(moments + 1)
        if block == 0:  # `finish` writes them while others read
            for i in tl.static_range(NUMBERS):
                tl.store(before + i, tl.load(moments + i))
    rows = tl.zeros([BLOCK], tl.int32)
    ends = tl.zeros([BLOCK], tl.int32)
    sum_return = tl.zeros([BLOCK], tl.float64)
    sum_length = tl.zeros([BLOCK], tl.int64)
    first = tl.zeros([BLOCK], tl.float64)
    second = tl.zeros([BLOCK], tl.float64)
    number = tl.zeros([BLOCK], tl.int32)
    energy = tl.zeros([BLOCK], tl.float64)
    for _ in tl.range(0, HORIZON, loop_unroll_factor=8):
        live = tl.load(mask + at, mask=inside, other=0) != 0
        over = (tl.load(terminal + at, mask=inside, other=0) != 0) | (
            tl.load(truncation + at, mask=inside, other=0) != 0
        )
        r = tl.load(reward + at, mask=inside, other=0.0)
        at += agents

        r = tl.where(live, r, 0.0)
        rows += live.to(tl.int32)
        total += r.to(tl.float64)
        length += live.to(tl.int64)
        done = live & over
        counted = done & ~skipped
        skipped = skipped & ~done
        ends += counted.to(tl.int32)
        sum_return += tl.where(counted, total, 0.0)
        sum_length += tl.where(counted, length, 0)
        total = tl.where(done, 0.0, total)
        length = tl.where(done, 0, length)
        if NORMALIZE:
            running = r + running
            d = tl.where(live, running.to(tl.float64) - shift, 0.0)
            first += d
            second += d * d
            number += (r != 0).to(tl.int32)
            energy += r.to(tl.float64) * r.to(tl.float64)
            running = tl.where(over, 0.0, running * gamma)

    tl.store(returns + n, total, mask=inside)
    tl.store(lengths + n, length, mask=inside)
    tl.store(next_left_out + n, skipped.to(tl.int8), mask=inside)
    put = partials + block
    tl.store(put, tl.sum(rows, 0).to(tl.float64))
    tl.store(put + blocks, tl.sum(ends, 0).to(tl.float64))
    tl.store(put + 2 * blocks, tl.sum(sum_return, 0))
    tl.store(put + 3 * blocks, tl.sum(sum_length, 0).to(tl.float64))
    if NORMALIZE:
        tl.store(discounted + n, running, mask=inside)
        put += (columns - SCALES) * blocks
        tl.store(put, tl.sum(first, 0))
        tl.store(put + blocks, tl.sum(second, 0))
        tl.store(put + 2 * blocks, tl.sum(number, 0).to(tl.float64))
        tl.store(put + 3 * blocks, tl.sum(energy, 0))


@triton.jit
def count_faults(
    mask, reward, terminal, truncation, logprob, value, partials, columns, blocks, agents,
    HORIZON: tl.constexpr, OWN_FINAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Counts entries that are not finite of one block of agents. Only if there are any, which is rare, a second walk
    counts those that are learnt from (finite_checks.py: checked). OWN_FINAL: the value of the row after a truncation
    is the final observation's."""
    block = tl.program_id(0)
    n = block * BLOCK + tl.arange(0, BLOCK)
    inside = n < agents
    at = n.to(tl.int64)
    rewards = tl.zeros([BLOCK], tl.int32)
    logprobs = tl.zeros([BLOCK], tl.int32)
    values = tl.zeros([BLOCK], tl.int32)
    for _ in tl.range(0, HORIZON, loop_unroll_factor=8):
        rewards += not_finite(tl.load(reward + at, mask=inside, other=0.0))
        logprobs += not_finite(tl.load(logprob + at, mask=inside, other=0.0))
        values += not_finite(tl.load(value + at, mask=inside, other=0.0))
        at += agents
    values += not_finite(tl.load(value + at, mask=inside, other=0.0))  # row T
    if tl.sum(rewards + logprobs + values, 0) > 0:
        at = n.to(tl.int64)
        rewards = tl.zeros([BLOCK], tl.int32)
        logprobs = tl.zeros([BLOCK], tl.int32)
        values = tl.zeros([BLOCK], tl.int32)
        read = tl.zeros([BLOCK], tl.int32)  # 1: the row before reads this row's value
        for _ in tl.range(0, HORIZON):
            live = (tl.load(mask + at, mask=inside, other=0) != 0).to(tl.int32)
            over = tl.load(terminal + at, mask=inside, other=0) != 0
            if not OWN_FINAL:
                over |= tl.load(truncation + at, mask=inside, other=0) != 0
            rewards += live * not_finite(tl.load(reward + at, mask=inside, other=0.0))
            logprobs += live * not_finite(tl.load(logprob + at, mask=inside, other=0.0))
            values += (live | read) * not_finite(tl.load(value + at, mask=inside, other=0.0))
            read = live * (~over).to(tl.int32)
            at += agents
        live = (tl.load(mask + at, mask=inside, other=0) != 0).to(tl.int32)
        values += (live | read) * not_finite(tl.load(value + at, mask=inside, other=0.0))
    put = partials + (columns - SCALES - 3) * blocks + block
    tl.store(put, tl.sum(rewards, 0).to(tl.float64))
    tl.store(put + blocks, tl.sum(logprobs, 0).to(tl.float64))
    tl.store(put + 2 * blocks, tl.sum(values, 0).to(tl.float64))


@triton.jit
def walk_statistic(
    mask, terminal, truncation, stats, left_out, partials, blocks, agents, number, of,
    HORIZON: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums statistic `number` over the counted episodes of one block of agents."""
    block = tl.program_id(0)
    n = block * BLOCK + tl.arange(0, BLOCK)
    inside = n < agents
    at = n.to(tl.int64)
    skipped = tl.load(left_out + n, mask=inside, other=0) != 0
    total = tl.zeros([BLOCK], tl.float64)
    for _ in tl.range(0, HORIZON, loop_unroll_factor=8):
        live = tl.load(mask + at, mask=inside, other=0) != 0
        done = live & (
            (tl.load(terminal + at, mask=inside, other=0) != 0)
            | (tl.load(truncation + at, mask=inside, other=0) != 0)
        )
        counted = done & ~skipped
        skipped = skipped & ~done
        total += tl.load(stats + at * of + number, mask=counted, other=0.0).to(tl.float64)
        at += agents
    tl.store(partials + (4 + number) * blocks + block, tl.sum(total, 0))


@triton.jit
def summarize(
    mask, reward, terminal, truncation, logprob, value, stats,
    returns, lengths, left_out, next_left_out, discounted, moments, before,
    partials, columns, blocks, agents, gamma, of,
    HORIZON: tl.constexpr, NORMALIZE: tl.constexpr, OWN_FINAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Summarizes blocks of agents (see the module). Grid (blocks, 2 + number of statistics `of`)."""
    part = tl.program_id(1)
    if part == 0:
        walk_returns(
            mask, reward, terminal, truncation,
            returns, lengths, left_out, next_left_out, discounted, moments, before,
            partials, columns, blocks, agents, gamma, HORIZON, NORMALIZE, BLOCK,
        )  # fmt: skip
    elif part == 1:
        count_faults(
            mask, reward, terminal, truncation, logprob, value, partials, columns, blocks, agents,
            HORIZON, OWN_FINAL, BLOCK,
        )  # fmt: skip
    else:
        walk_statistic(
            mask,
            terminal,
            truncation,
            stats,
            left_out,
            partials,
            blocks,
            agents,
            part - 2,
            of,
            HORIZON,
            BLOCK,
        )


@triton.jit
def finish(
    reward, left_out, next_left_out, moments, before, applied, partials, figures, columns, blocks, agents,
    HORIZON: tl.constexpr, NORMALIZE: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    BLOCKS: tl.constexpr, EPSILON: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """Sums partials and scales rewards (see the module). Grid (the larger of blocks and columns, chunks of rows)."""
    block, chunk = tl.program_id(0), tl.program_id(1)
    n = block * BLOCK + tl.arange(0, BLOCK)
    inside = n < agents
    p = tl.arange(0, BLOCKS)
    there = p < blocks
    if chunk == 0:
        tl.store(left_out + n, tl.load(next_left_out + n, mask=inside, other=0) != 0, mask=inside)
        if block < columns - SCALES:
            column = tl.load(partials + block * blocks + p, mask=there, other=0.0)
            tl.store(figures + block, tl.sum(column, 0))
    if NORMALIZE:
        new = tl.sum(tl.load(partials + p, mask=there, other=0.0), 0)
        sums = partials + (columns - SCALES) * blocks + p
        first = tl.sum(tl.load(sums, mask=there, other=0.0), 0)
        second = tl.sum(tl.load(sums + blocks, mask=there, other=0.0), 0)
        number = tl.load(before + 3) + tl.sum(tl.load(sums + 2 * blocks, mask=there, other=0.0), 0)
        energy = tl.load(before + 4) + tl.sum(tl.load(sums + 3 * blocks, mask=there, other=0.0), 0)
        count, mean, squares = tl.load(before), tl.load(before + 1), tl.load(before + 2)
        delta = first / tl.maximum(new, 1.0)
        total = tl.maximum(count + new, 1.0)
        squares += tl.maximum(second - first * delta, 0.0) + delta * delta * count * new / total
        mean += delta * new / total
        least = tl.maximum(energy / (tl.maximum(number, 1.0) * (number + 1.0)), mean * mean / (MOST * MOST))
        scale = 1.0 / tl.sqrt(tl.maximum(squares / total + EPSILON, least))
        known = (squares < float("inf")) & (
            energy < float("inf")
        )  # else a reward is not finite: left to be named
        factor = tl.where(known & (number > 0), scale, 1.0).to(tl.float32)
        if (block == 0) & (chunk == 0):
            tl.store(moments, count + new)
            tl.store(moments + 1, mean)
            tl.store(moments + 2, squares)
            tl.store(moments + 3, number)
            tl.store(moments + 4, energy)
            tl.store(applied, factor.to(tl.float64))
        t = chunk * CHUNK + tl.arange(0, CHUNK)
        at = t.to(tl.int64)[:, None] * agents + n[None, :]
        held = (t < HORIZON)[:, None] & inside[None, :]
        tl.store(reward + at, tl.load(reward + at, mask=held, other=0.0) * factor, mask=held)


class GpuSummary:
    """Launches the kernels on tensors that stay in place.

    Args:
        figures: float64 on the buffers' device; `run` fills its first `width` entries.
    """

    def __init__(
        self,
        spec: EnvSpec,
        buffers: Buffers,
        episodes: EpisodeStats,
        reward_scale: RewardScale | None,
        figures: Tensor,
    ) -> None:
        self._own_final = spec.has_final_obs and buffers.bootstrap is None
        self.buffers, self.figures = buffers, figures
        self.episodes, self.reward_scale = episodes, reward_scale
        agents, device = buffers.num_agents, buffers.device
        self._stats = buffers.stats.shape[2]
        self._columns = 7 + int(SCALES) + self._stats
        self.width = self._columns - int(SCALES)
        self._block = max(32, triton.next_power_of_2(triton.cdiv(agents, BLOCKS)))
        self._blocks = triton.cdiv(agents, self._block)
        self._partials = torch.zeros((self._columns, self._blocks), dtype=torch.float64, device=device)
        self._left_out = torch.zeros(agents, dtype=torch.int8, device=device)
        self._before = torch.zeros(MOMENTS, dtype=torch.float64, device=device)

    def run(self) -> None:
        """Launches both kernels on the current stream."""
        b, episodes, scale = self.buffers, self.episodes, self.reward_scale
        normalize = scale is not None
        discounted, moments = (scale.discounted, scale.moments) if scale else (b.reward, self._before)
        sizes = {
            "HORIZON": b.horizon,
            "NORMALIZE": normalize,
            "BLOCK": self._block,
            "enable_fp_fusion": False,  # round R as torch does
        }
        summarize[(self._blocks, 2 + self._stats)](
            b.mask, b.reward, b.terminal, b.truncation, b.logprob, b.value, b.stats,
            episodes.returns, episodes.lengths, episodes.left_out, self._left_out,
            discounted, moments, self._before, self._partials, self._columns, self._blocks, b.num_agents,
            scale.gamma if scale else 0.0, self._stats,
            OWN_FINAL=self._own_final, num_warps=min(self._block // 32, 8), **sizes,
        )  # fmt: skip
        chunks = triton.cdiv(b.horizon, CHUNK) if normalize else 1
        finish[(max(self._blocks, self._columns), chunks)](
            b.reward, episodes.left_out, self._left_out, moments, self._before, scale.factor if scale else b.reward,
            self._partials, self.figures, self._columns, self._blocks, b.num_agents,
            CHUNK=CHUNK, BLOCKS=BLOCKS, EPSILON=EPSILON, MOST=MOST, num_warps=4, **sizes,
        )  # fmt: skip
