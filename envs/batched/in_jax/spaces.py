"""Describes an environment of gymnax's interface: its leaves by what a reset would return, its actions by their space.

Place in the flow: factory.py calls `describe_jax`, which runs nothing on a device: shapes are traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metta_fast.contracts.env import ActionSpec
from metta_fast.contracts.errors import UserError
from metta_fast.envs.actions import action_spec
from metta_fast.envs.batched.described import Described, privileged
from metta_fast.envs.batched.in_jax.rules import Rules
from metta_fast.envs.python_slot import SAME_STEP
from metta_fast.envs.spaces import Part


def describe_jax(made: Any, drop: Sequence[str]) -> tuple[Rules, Described]:
    """Returns the environment's rules and description.

    Args:
        made: the environment, or (env, params).
        drop: leaves that are left out.

    Raises:
        UserError: actions that are not supported, or leaves to drop that are not there.
    """
    env, params = made if isinstance(made, tuple) else (made, None)
    rules = Rules(env, params)
    space = env.observation_space(rules.params)
    parts = [_part(name, leaf, space) for name, leaf in sorted(rules.obs.items())]
    names = [part.name for part in parts]
    for name in drop:
        if name not in names:
            raise UserError(f"env.drop=[{name}]: the observation has no such leaf; it has {', '.join(names)}")
    kept = tuple(part for part in parts if part.name not in drop)
    if not kept:
        raise UserError(f"env.drop=[{', '.join(drop)}] leaves nothing of the observation; keep a leaf")
    about = Described(
        kept,
        _action(env.action_space(rules.params)),
        None,
        0,
        SAME_STEP,
        rules.has_final_obs,
        rules.max_steps,
        privileged=privileged(kept, None),
        cheap_state=False,
    )
    return rules, about


def _part(name: str, leaf: Any, space: Any) -> Part:
    dtype, shape = np.dtype(leaf.dtype), tuple(leaf.shape)
    if name == "obs" and shape == () and dtype.kind in "iu" and hasattr(space, "n"):
        return Part(name, (name,), (), dtype, (int(space.n),), (0,))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        channels = 1 if len(shape) != 3 else shape[_channels(shape)]
        bounds = ((int(limits.min), int(limits.max)),) * channels
        return Part(name, (name,), shape, dtype, bounds=bounds)
    return Part(name, (name,), shape, dtype)


def _channels(shape: tuple[int, ...]) -> int:
    from metta_fast.envs.observed.leaf_kinds import symbol_axis

    return symbol_axis(shape) or 0


def _action(space: Any) -> ActionSpec:
    """Returns the spec of gymnax's Discrete or Box, or of Gymnasium's spaces."""
    from gymnasium import spaces

    if isinstance(space, spaces.Space):
        return action_spec(space)
    if hasattr(space, "n"):
        return action_spec(spaces.Discrete(int(space.n)))
    if hasattr(space, "low") and hasattr(space, "high"):
        shape = tuple(space.shape)
        low = np.broadcast_to(np.asarray(space.low, np.float32), shape)
        high = np.broadcast_to(np.asarray(space.high, np.float32), shape)
        return action_spec(spaces.Box(low, high, dtype=np.float32))
    raise UserError(f"actions of {type(space).__name__}: expected Discrete or Box (wrap the environment)")
