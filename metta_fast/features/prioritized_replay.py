"""Draws minibatches that prefer segments with large advantages: prioritized replay.

    features={prioritized_replay: {prio_alpha: 0.6, prio_beta: 0.4}}

For N segments with w = (Σ_t |A_t|)^α each minibatch draws its segments without replacement with p ∝ w + 1e-6.
Their normalised advantages are multiplied by (N·p)^−β, which corrects the bias; β grows linearly from
`prio_beta` to 1 over the run. Source: Schaul et al. 2016, arXiv:1511.05952, with segments for transitions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Context, Hooks, Sample
from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.errors import UserError

FLOOR = 1e-6
"""Added to every weight, so that every segment can be drawn."""
STREAM = 1


def add(hooks: Hooks, *, prio_alpha: float = 0.6, prio_beta: float = 0.4) -> None:
    """Replaces the choice of segments.

    Args:
        prio_alpha: exponent of the advantages; 0 switches the feature off.
        prio_beta: share of the bias that is corrected at the start, 0 … 1.

    Raises:
        UserError: a value out of range, or another feature that chooses segments.
    """
    for name, value, high in (("prio_alpha", prio_alpha, float("inf")), ("prio_beta", prio_beta, 1.0)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= high:
            allowed = "a number of at least 0" if name == "prio_alpha" else "a number from 0 to 1"
            raise UserError(f"features.prioritized_replay.{name}={value!r}: expected {allowed}")
    if prio_alpha == 0:
        return
    if hooks.sample is not None:
        raise UserError("features.prioritized_replay: another feature chooses segments; enable one of them")

    def sample(context: Context) -> Sample:
        p = probabilities(context.buffers, prio_alpha)
        segments = torch.multinomial(p, context.segments, generator=context.generator(STREAM))
        exponent = prio_beta + (1 - prio_beta) * context.progress
        return Sample(segments, (len(p) * p[segments]).pow(-exponent))

    hooks.sample = sample


def probabilities(buffers: Buffers, alpha: float) -> Tensor:
    """Returns [num_segments] float32: each segment's probability of being drawn first."""
    sums = buffers.advantage.abs().unflatten(0, (-1, buffers.bptt_horizon)).sum(1).flatten()
    weights = sums.pow(alpha) + FLOOR
    return weights / weights.sum()
