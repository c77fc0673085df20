"""Computes advantages with plain loops, in float64: the reference that kernels are tested against."""

from __future__ import annotations

import numpy as np

from metta_fast.algorithms.ppo.advantage.inputs import Inputs
from metta_fast.contracts.env import Array


def advantage_reference(inputs: Inputs[Array]) -> tuple[Array, Array]:
    """Returns (advantage, returns), each [T, N] float64, by the formula of this package's docstring."""
    i = inputs
    horizon, agents = i.reward.shape
    advantage = np.zeros((horizon + 1, agents))
    for n in range(agents):
        for t in reversed(range(horizon)):
            if not i.mask[t, n]:
                continue
            rho = c = 1.0
            if i.ratio is not None:
                rho, c = min(i.rho_clip, float(i.ratio[t, n])), min(i.c_clip, float(i.ratio[t, n]))
            if i.terminal[t, n] or (i.truncation[t, n] and not i.has_final_obs):
                next_value = 0.0
            elif i.truncation[t, n] and i.bootstrap is not None:
                next_value = float(i.bootstrap[t, n])
            else:
                next_value = float(i.value[t + 1, n])
            delta = rho * (float(i.reward[t, n]) + i.gamma * next_value - float(i.value[t, n]))
            done = i.terminal[t, n] or i.truncation[t, n]
            advantage[t, n] = delta + (0.0 if done else i.gamma * i.gae_lambda * c * advantage[t + 1, n])
    return advantage[:-1], advantage[:-1] + i.value[:-1]
