"""Advantages by plain loops, one number at a time, in float64: what the kernels are tested against."""

from __future__ import annotations

import numpy as np

from metta_fast.contracts.env import Array


def advantage_reference(
    value: Array,
    reward: Array,
    terminal: Array,
    truncation: Array,
    mask: Array,
    ratio: Array | None,
    gamma: float,
    gae_lambda: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    has_final_obs: bool = True,
) -> tuple[Array, Array]:
    """The formula of this package's docstring.

    Args:
        value: [T+1, N]. mask: [T, N] or [T+1, N] bool. reward, terminal, truncation, ratio: [T, N].
        ratio: None for GAE.

    Returns:
        (advantage, returns), each [T, N] float64.
    """
    horizon, agents = reward.shape
    advantage = np.zeros((horizon + 1, agents))
    for n in range(agents):
        for t in reversed(range(horizon)):
            if not mask[t, n]:
                continue
            rho = c = 1.0
            if ratio is not None:
                rho, c = min(rho_clip, float(ratio[t, n])), min(c_clip, float(ratio[t, n]))
            if terminal[t, n] or (truncation[t, n] and not has_final_obs):
                next_value = 0.0
            else:
                next_value = float(value[t + 1, n])
            delta = rho * (float(reward[t, n]) + gamma * next_value - float(value[t, n]))
            done = terminal[t, n] or truncation[t, n]
            advantage[t, n] = delta + (0.0 if done else gamma * gae_lambda * c * advantage[t + 1, n])
    return advantage[:-1], advantage[:-1] + value[:-1]
