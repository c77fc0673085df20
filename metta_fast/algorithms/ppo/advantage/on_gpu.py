"""Computes advantages with one Triton kernel: each program scans chunks of rows backwards for a block of agents.

A[t] = δ[t] + k[t] A[t+1] is a composition of affine maps, so the rows of a chunk are read at once and combined by an
associative scan: the kernel waits for memory once per chunk, not once per row. A tile's rows are in reverse order,
because Triton's scan with reverse=True returns wrong results (triton-lang/triton issue 4362).
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from metta_fast.algorithms.ppo.advantage.inputs import Inputs
from metta_fast.algorithms.ppo.advantage.value_sums import VALUE_SUMS

CHUNK, BLOCK = 32, 32
"""Rows and agents per tile: a warp reads 32 adjacent agents."""


@triton.jit
def compose(later_slope, later_value, slope, value):
    """The affine map x → value + slope · x after the later rows' map."""
    return slope * later_slope, value + slope * later_value


@triton.jit
def backwards(
    value, reward, terminal, truncation, mask, ratio, bootstrap, advantage, returns, partials,
    agents, gamma, decay, rho_clip, c_clip,
    HORIZON: tl.constexpr, VTRACE: tl.constexpr, BOOTSTRAP: tl.constexpr, GIVEN: tl.constexpr,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Writes `advantage` and `returns` of BLOCK agents. decay: γλ. BOOTSTRAP: a truncation bootstraps;
    GIVEN: from `bootstrap`. partials [len(VALUE_SUMS), programs] float64."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.arange(0, CHUNK)
    carry = tl.zeros([BLOCK], tl.float32)  # A of the row after the chunk
    lives = tl.zeros([BLOCK], tl.int32)
    sum_returns = tl.zeros([BLOCK], tl.float64)
    sum_returns_2 = tl.zeros([BLOCK], tl.float64)
    sum_a = tl.zeros([BLOCK], tl.float64)
    sum_a_2 = tl.zeros([BLOCK], tl.float64)
    for i in tl.range(0, (HORIZON + CHUNK - 1) // CHUNK):
        t = ((HORIZON - 1) // CHUNK - i) * CHUNK + CHUNK - 1 - rows
        at = t.to(tl.int64)[:, None] * agents + n[None, :]
        held = (t < HORIZON)[:, None] & (n < agents)[None, :]
        live = tl.load(mask + at, mask=held, other=0) != 0
        ended = tl.load(terminal + at, mask=held, other=0) != 0
        cut = tl.load(truncation + at, mask=held, other=0) != 0
        done = ended | cut
        r = tl.load(reward + at, mask=held, other=0.0)
        v = tl.load(value + at, mask=held, other=0.0)
        next_v = tl.load(value + at + agents, mask=held, other=0.0)
        if GIVEN:
            next_v = tl.where(cut, tl.load(bootstrap + at, mask=held, other=0.0), next_v)
        if not BOOTSTRAP:
            ended = done
        delta = r + gamma * tl.where(ended, 0.0, next_v) - v
        slope = tl.where(live & ~done, decay, 0.0)
        if VTRACE:
            weight = tl.load(ratio + at, mask=held, other=0.0)
            delta *= tl.minimum(weight, rho_clip)
            slope *= tl.minimum(weight, c_clip)
        delta = tl.where(live, delta, 0.0)
        delta += tl.where((rows == 0)[:, None], slope * carry[None, :], 0.0)
        _, a = tl.associative_scan((slope, delta), 0, compose)
        tl.store(advantage + at, a, mask=held)
        tl.store(returns + at, a + v, mask=held)
        carry = tl.sum(tl.where((rows == CHUNK - 1)[:, None], a, 0.0), 0)
        target = tl.where(live, a + v, 0.0)
        lives += tl.sum(live.to(tl.int32), 0)
        sum_returns += tl.sum(target, 0).to(tl.float64)
        sum_returns_2 += tl.sum(target * target, 0).to(tl.float64)
        a = tl.where(live, a, 0.0)
        sum_a += tl.sum(a, 0).to(tl.float64)
        sum_a_2 += tl.sum(a * a, 0).to(tl.float64)
    to = partials + tl.program_id(0)
    programs = tl.num_programs(0)
    tl.store(to, tl.sum(lives, 0).to(tl.float64))
    tl.store(to + programs, tl.sum(sum_returns, 0))
    tl.store(to + 2 * programs, tl.sum(sum_returns_2, 0))
    tl.store(to + 3 * programs, tl.sum(sum_a, 0))
    tl.store(to + 4 * programs, tl.sum(sum_a_2, 0))


def advantage_on_gpu(
    inputs: Inputs[Tensor], advantage: Tensor, returns: Tensor, sums: Tensor | None = None
) -> None:
    """Writes `advantage` and `returns` [T, N], contiguous: one launch on the current stream; one more for `sums`
    [len(VALUE_SUMS)] float64, if given."""
    i = inputs
    horizon, agents = i.reward.shape
    unused, programs = i.reward, triton.cdiv(agents, BLOCK)
    partials = torch.empty((len(VALUE_SUMS), programs), dtype=torch.float64, device=i.reward.device)
    backwards[(programs,)](
        i.value, i.reward, i.terminal, i.truncation, i.mask, unused if i.ratio is None else i.ratio,
        unused if i.bootstrap is None else i.bootstrap, advantage, returns, partials,
        agents, i.gamma, i.gamma * i.gae_lambda, i.rho_clip, i.c_clip,
        HORIZON=horizon, VTRACE=i.ratio is not None, BOOTSTRAP=i.has_final_obs, GIVEN=i.bootstrap is not None,
        CHUNK=CHUNK, BLOCK=BLOCK, num_warps=4,
    )  # fmt: skip
    if sums is not None:
        torch.sum(partials, 1, out=sums)
