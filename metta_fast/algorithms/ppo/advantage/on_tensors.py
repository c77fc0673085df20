"""Advantages by torch operations, on any device; no value is read by the host, so graphs can capture it."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def advantage_on_tensors(
    value: Tensor,
    reward: Tensor,
    terminal: Tensor,
    truncation: Tensor,
    mask: Tensor,
    ratio: Tensor | None,
    advantage: Tensor,
    returns: Tensor,
    gamma: float,
    gae_lambda: float,
    rho_clip: float,
    c_clip: float,
    has_final_obs: bool,
) -> None:
    """Write `advantage` and `returns`. Shapes as in metta_fast/buffers/rollout.py; `ratio` None: GAE.

    All rows' δ and decay at once, then one operation for each step backwards in time.
    """
    horizon = reward.shape[0]
    mask = mask[:horizon]
    done = terminal | truncation
    no_bootstrap = terminal if has_final_obs else done
    delta = reward + gamma * value[1:].masked_fill(no_bootstrap, 0.0) - value[:-1]
    decay = torch.where(mask & ~done, gamma * gae_lambda, 0.0)
    if ratio is not None:
        delta = delta * ratio.clamp(max=rho_clip)
        decay = decay * ratio.clamp(max=c_clip)
    delta = delta.masked_fill(~mask, 0.0)
    advantage[-1] = delta[-1]
    for t in range(horizon - 2, -1, -1):
        torch.addcmul(delta[t], decay[t], advantage[t + 1], out=advantage[t])
    torch.add(advantage, value[:-1], out=returns)
