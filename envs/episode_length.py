"""Finds the time limit of a Python environment: the most steps that an episode can take.

Place in the flow: python_env.py stores it as EnvSpec.max_steps. Values derived for an environment that is not ours
(metta_fast/resolve/derived/values.py) and the patience of evaluations depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

ATTRIBUTES = ("_max_episode_steps", "max_episode_steps", "max_steps", "max_cycles")
"""Attributes of an environment or wrapper that give a limit: Gymnasium's TimeLimit, and customary names (max_cycles:
PettingZoo's)."""
MOST_WRAPPERS = 100


def episode_length(env: Any) -> int:
    """Returns the smallest limit that the environment or one of its wrappers states; 0: none states one.

    A limit is `spec.max_episode_steps` or one of ATTRIBUTES, a whole number above 0. A task of one step is one that
    states a limit of 1.
    """
    found = []
    for layer in layers(env):
        with suppress(Exception):  # properties are the user's code
            found.append(layer.spec.max_episode_steps)
        for name in ATTRIBUTES:
            with suppress(Exception):
                found.append(getattr(layer, name))
    return min((int(limit) for limit in found if _is_limit(limit)), default=0)


def reward_threshold(env: Any) -> float | None:
    """Returns the mean return at which the environment counts as solved (`spec.reward_threshold`), or None."""
    for layer in layers(env):
        with suppress(Exception):  # properties are the user's code
            found = layer.spec.reward_threshold
            if isinstance(found, (int, float, np.number)) and np.isfinite(found):
                return float(found)
    return None


def layers(env: Any) -> Iterator[Any]:
    """Yields an environment and those that it wraps or converts (PettingZoo's aec_env), from the outside."""
    for _ in range(MOST_WRAPPERS):
        if env is None:
            return
        yield env
        inside = None
        for name in ("env", "aec_env"):
            with suppress(Exception):
                inside = getattr(env, name)
                break
        env = inside


def _is_limit(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 0 < int(value) < 1 << 31
