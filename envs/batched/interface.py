"""Finds out which interface of batched environments an object has, and how its episodes end.

    interface_of(gymnasium.make_vec("CartPole-v1", 4))      # "gymnasium": arrays of all environments
    interface_of(mani_skill_env)                            # "torch": the same in tensors (Isaac Lab, ManiSkill)
    interface_of(rsl_rl_env)                                # "rsl_rl": get_observations(), step(actions), no reset
    interface_of(gymnax.make("CartPole-v1"))                # "jax": (env, params), or the environment alone
    interface_of(anything_else)                             # ""

Place in the flow: metta_fast.envs asks before it takes an object for a maker of environment i; factory.py asks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np

from metta_fast.contracts.errors import UserError
from metta_fast.envs.episode_length import layers
from metta_fast.envs.python_slot import DISABLED, NEXT_STEP, SAME_STEP

GYMNASIUM, TORCH, RSL_RL, JAX = "gymnasium", "torch", "rsl_rl", "jax"
EXPECTED = (
    "expected a Gymnasium VectorEnv, RSL-RL's VecEnv, tensors with Gymnasium's vector interface, or an environment of "
    "gymnax's interface (docs/batched.md)"
)


def interface_of(made: Any) -> str:
    """Returns GYMNASIUM, TORCH, RSL_RL or JAX; "" for an object of another kind."""
    if isinstance(made, type) or made is None:
        return ""
    if isinstance(made, tuple):
        return JAX if len(made) == 2 and _is_jax(made[0]) else ""
    if any(kind.__module__.partition(".")[0] == "pufferlib" for kind in type(made).__mro__):
        return ""
    if _has(made, "get_observations", "step") and is_count(seek(made, "num_actions")) and count(made):
        return RSL_RL
    spaces = (seek(made, "single_observation_space"), seek(made, "single_action_space"))
    if None not in spaces and count(made) and _has(made, "reset", "step"):
        return GYMNASIUM if seek(made, "device") is None else TORCH
    return JAX if _is_jax(made) else ""


def _is_jax(env: Any) -> bool:
    if isinstance(env, (type, gymnasium.Env, gymnasium.vector.VectorEnv)):
        return False
    if hasattr(env, "agents") or hasattr(env, "possible_agents"):
        return False  # PettingZoo's environments ask for an agent's space as gymnax's do for that of params
    return _has(env, "reset", "step", "action_space", "observation_space")


def _has(env: Any, *methods: str) -> bool:
    return all(callable(getattr(env, name, None)) for name in methods)


def seek(env: Any, name: str) -> Any:
    """Returns an attribute of an environment, or of one that it wraps; None if there is none."""
    for layer in (*layers(env), unwrapped(env)):
        with suppress(Exception):  # properties are the user's code
            if (found := getattr(layer, name, None)) is not None:
                return found
    return None


def unwrapped(env: Any) -> Any:
    """Returns the innermost environment; None if there is none to see."""
    with suppress(Exception):
        return env.unwrapped
    return None


def is_count(value: Any) -> bool:
    """Returns whether the value is a whole number above 0."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and int(value) >= 1


def count(env: Any) -> int:
    """Returns the environment's num_envs; 0 if it states none."""
    found = seek(env, "num_envs")
    return int(found) if is_count(found) else 0


def metadata(env: Any) -> Mapping[str, Any]:
    """Returns the environment's metadata, {} if it has none."""
    found = seek(env, "metadata")
    return found if isinstance(found, Mapping) else {}


def autoreset_mode(env: Any, default: str) -> str:
    """Returns Gymnasium's name of when ended environments are reset.

    Args:
        default: for an environment whose metadata does not state autoreset_mode.

    Raises:
        UserError: the metadata states an unknown mode.
    """
    mode = metadata(env).get("autoreset_mode")
    if mode is None:
        resets = seek(env, "auto_reset")  # ManiSkill's
        return default if not isinstance(resets, bool) else SAME_STEP if resets else DISABLED
    value = str(getattr(mode, "value", mode))
    if value not in (DISABLED, NEXT_STEP, SAME_STEP):
        raise UserError(f"metadata['autoreset_mode'] is {mode!r}: expected Gymnasium's AutoresetMode")
    return value
