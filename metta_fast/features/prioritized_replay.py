"""Draws minibatches that prefer segments with large advantages: prioritized replay.

    features={prioritized_replay: {prio_alpha: 0.6, prio_beta: 0.4, prio_floor: 0.1}}

With the priority p = (Σ_t |A_t|)^α of each of N segments, mixed with the uniform distribution,

    share[i] = (1 − floor) · p[i] / Σ p + floor / N

a minibatch of n segments draws segment i with probability π[i] = min(1, c · share[i]), c such that Σ π = n, and never
twice. Its normalised advantages are multiplied by (n / (N · π[i]))^β; β grows linearly from `prio_beta` to 1 over the
run. At β = 1 the expected sum over a minibatch is exactly that of segments drawn uniformly, whatever n and the
priorities are. No weight is above 1 / floor. With n = N every segment is drawn, with weight 1.

Segments are drawn by systematic sampling in random order (Madow 1949), which has exactly these π. Source of the idea:
Schaul et al. 2016, arXiv:1511.05952, with segments for transitions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Context, Hooks, Sample
from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.errors import UserError

LEAST_FLOOR = 1e-3
UNIT = 1 << 40
"""Probabilities are whole multiples of 1/UNIT: sums of integers are exact, and on a GPU in a fixed order."""
MOST_ALPHA = 100.0
STREAM = 1


def add(hooks: Hooks, *, prio_alpha: float = 0.6, prio_beta: float = 0.4, prio_floor: float = 0.1) -> None:
    """Replaces the choice of segments.

    Args:
        prio_alpha: exponent of the advantages; 0 switches the feature off.
        prio_beta: share of the bias that is corrected at the start, 0 … 1.
        prio_floor: share of the draws that is uniform, above 0 … 1; no segment's weight is above 1 / prio_floor.

    Raises:
        UserError: a value out of range, or another feature that chooses segments.
    """
    limits = (
        ("prio_alpha", prio_alpha, MOST_ALPHA),
        ("prio_beta", prio_beta, 1.0),
        ("prio_floor", prio_floor, 1.0),
    )
    for name, value, high in limits:
        good = not isinstance(value, bool) and isinstance(value, (int, float)) and 0 <= value <= high
        if not good or (name == "prio_floor" and value < LEAST_FLOOR):
            allowed = {
                "prio_alpha": f"a number from 0 to {MOST_ALPHA:g}",
                "prio_beta": "a number from 0 to 1",
            }
            raise UserError(
                f"features.prioritized_replay.{name}={value!r}: expected "
                + allowed.get(name, f"a number from {LEAST_FLOOR} to 1")
            )
    if prio_alpha == 0:
        return
    if hooks.sample is not None:
        raise UserError("features.prioritized_replay: another feature chooses segments; enable one of them")

    def sample(context: Context) -> Sample:
        shares = probabilities(context.buffers, prio_alpha, prio_floor)
        chance = inclusion(shares, context.segments)
        segments = draw(chance, context.segments, context.generator(STREAM))
        exponent = prio_beta + (1 - prio_beta) * context.progress
        drawn = chance[segments].double() / UNIT
        weight = (context.segments / (len(chance) * drawn)).pow(exponent)
        return Sample(segments, weight.float())

    hooks.sample = sample


def probabilities(buffers: Buffers, alpha: float, floor: float = 0.0) -> Tensor:
    """Returns [num_segments] float64, sum 1: each segment's share of the draws, `floor` of all of them uniform."""
    sums = buffers.advantage.abs().unflatten(0, (-1, buffers.bptt_horizon)).sum(1).flatten().double()
    weights = (sums / sums.amax().clamp(min=torch.finfo(torch.float32).tiny)).pow(alpha)
    total = weights.sum()
    even = 1 / len(weights)
    shares = torch.where(total > 0, weights / total, even)
    return (1 - floor) * shares + floor * even


def inclusion(shares: Tensor, count: int) -> Tensor:
    """Returns [N] int64: UNIT times the probability with which each segment is among `count` drawn.

    In proportion to `shares` [N] float64, but never above 1: the segments with the largest shares are drawn for
    certain, and the others share what is left.
    """
    n = len(shares)
    if count >= n:
        return torch.full((n,), UNIT, dtype=torch.int64, device=shares.device)
    ordered = shares.sort(descending=True).values
    whole = (ordered * (UNIT << 10)).round().long()
    rest = (whole.sum() - whole.cumsum(0) + whole).double() / (UNIT << 10)  # of the k-th and all after it
    left = count - torch.arange(n, device=shares.device)  # draws for them, if the k before are certain
    fits = (left * ordered <= rest * (1 + 1e-12)) & (left > 0)
    k = fits.int().argmax(keepdim=True)  # the first for which none of the others would be above 1
    factor = left.gather(0, k) / rest.gather(0, k)
    return (shares * factor).clamp(max=1).mul(UNIT).round().long().clamp(min=1)


def draw(chance: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Returns `count` segments, int64 […, count] in random order, none twice; chance […, N] int64 as of `inclusion`.

    The intervals of length `chance` are side by side in random order. A segment is drawn where a point of a grid of
    width UNIT, shifted at random, is in its interval.
    """
    device = chance.device
    order = torch.rand(chance.shape, dtype=torch.float64, generator=generator, device=device).argsort(-1)
    ends = chance.gather(-1, order).cumsum(-1)
    width = ends[..., -1:] // count  # UNIT, but for rounding
    shift = torch.rand(width.shape, dtype=torch.float64, generator=generator, device=device)
    points = (shift * width).long() + width * torch.arange(count, device=device)
    return order.gather(-1, torch.searchsorted(ends, points, right=True).clamp(max=chance.shape[-1] - 1))
