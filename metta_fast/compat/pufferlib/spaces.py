"""Names Gymnasium's kinds of spaces as PufferLib does, as tuples for `isinstance`, and joins those of several agents.

isinstance(space, pufferlib.spaces.Discrete)
joint_space(Discrete(4), 8)                   # MultiDiscrete([4] * 8)
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

Box = (gymnasium.spaces.Box,)
Dict = (gymnasium.spaces.Dict,)
Discrete = (gymnasium.spaces.Discrete,)
MultiBinary = (gymnasium.spaces.MultiBinary,)
MultiDiscrete = (gymnasium.spaces.MultiDiscrete,)
Tuple = (gymnasium.spaces.Tuple,)


def joint_space(space: gymnasium.Space[Any], n: int) -> gymnasium.Space[Any]:
    """Returns the space of the values of n agents, whose first axis is the agents. Raises ValueError for a space that a
    PufferEnv cannot have."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return gymnasium.spaces.MultiDiscrete([space.n] * n, start=[space.start] * n)
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
        return _repeated(low, high, n, space.dtype)
    if isinstance(space, gymnasium.spaces.Box):
        return _repeated(space.low, space.high, n, space.dtype)
    raise ValueError(f"{space}: expected Discrete, MultiDiscrete or Box")


def _repeated(low: Any, high: Any, n: int, dtype: Any) -> gymnasium.spaces.Box:
    return gymnasium.spaces.Box(np.repeat(low[None], n, 0), np.repeat(high[None], n, 0), dtype=dtype)
