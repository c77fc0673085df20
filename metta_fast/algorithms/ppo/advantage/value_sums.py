"""Adds up what the explained variance needs: how much of the returns' variance the rollout's values predict.

    explained variance = 1 − Var(returns − V) / Var(returns),   returns − V = advantage

over the unmasked rows: 1 if values are right, 0 if they are no better than one number for all, negative if worse. On a
GPU with Triton the advantage's own kernel adds up (on_gpu.py).
"""

from __future__ import annotations

import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers

VALUE_SUMS = ("rows", "returns", "returns_squared", "advantage", "advantage_squared")


@torch.no_grad()
def add_up(buffers: Buffers, sums: Tensor) -> None:
    """Writes VALUE_SUMS of the rollout to `sums`, without waiting. A masked row's advantage is 0 already."""
    b = buffers
    mask = b.mask[: b.horizon].flatten()
    returns, advantage = b.returns.flatten().masked_fill(~mask, 0.0), b.advantage.flatten()
    torch.stack(
        [mask.sum(), returns.sum(), returns.dot(returns), advantage.sum(), advantage.dot(advantage)], out=sums
    )


def explained_variance(sums: dict[str, float]) -> float | None:
    """Returns the explained variance; None if the returns do not vary."""
    rows = sums["rows"]
    if not rows:
        return None
    mean, residual = sums["returns"] / rows, sums["advantage"] / rows
    variance = sums["returns_squared"] / rows - mean**2
    if not variance > 1e-6 * mean**2:  # rounding
        return None
    return 1 - (sums["advantage_squared"] / rows - residual**2) / variance
