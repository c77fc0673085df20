"""Computes advantages with torch operations, on any device. The host reads no value, so graphs can capture it."""

from __future__ import annotations

import torch
from torch import Tensor

from metta_fast.algorithms.ppo.advantage.inputs import Inputs


@torch.no_grad()
def advantage_on_tensors(inputs: Inputs[Tensor], advantage: Tensor, returns: Tensor) -> None:
    """Writes `advantage` and `returns` [T, N].

    Computes δ and decay of all rows at once, then one operation per step backwards in time.
    """
    value, reward, terminal, ratio = inputs.value, inputs.reward, inputs.terminal, inputs.ratio
    horizon = reward.shape[0]
    mask = inputs.mask[:horizon]
    done = terminal | inputs.truncation
    no_bootstrap = terminal if inputs.has_final_obs else done
    next_value = value[1:]
    if inputs.bootstrap is not None:
        next_value = torch.where(inputs.truncation, inputs.bootstrap, next_value)
    delta = reward + inputs.gamma * next_value.masked_fill(no_bootstrap, 0.0) - value[:-1]
    decay = torch.where(mask & ~done, inputs.gamma * inputs.gae_lambda, 0.0)
    if ratio is not None:
        delta = delta * ratio.clamp(max=inputs.rho_clip)
        decay = decay * ratio.clamp(max=inputs.c_clip)
    delta = delta.masked_fill(~mask, 0.0)
    advantage[-1] = delta[-1]
    for t in range(horizon - 2, -1, -1):
        torch.addcmul(delta[t], decay[t], advantage[t + 1], out=advantage[t])
    torch.add(advantage, value[:-1], out=returns)
