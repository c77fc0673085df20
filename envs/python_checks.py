"""Checks what a maker of Python environments gives, before anything is stepped; each message names the cure.

    env = make_env(make, 3)                      # EnvError: environment 3 is the class Walk, not an environment: …
    close_env(env, 3)                            # EnvError: environment 3: close() raised …
    agents = num_agents(env, parts)              # None: one agent with Gymnasium's API

Place in the flow: python_env.py and python_slot.py make, count and close environments with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from metta_fast.config.extension import described, takes
from metta_fast.contracts.env import EnvError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.contracts.progress import watched
from metta_fast.envs.agents.zoo import is_zoo, wrong_zoo
from metta_fast.envs.episode_length import layers
from metta_fast.envs.puffer.placed import is_puffer
from metta_fast.envs.spaces import FieldError, Part

API = "observation_space, action_space, reset(seed=…), step(action)"
OLD_API = (
    "this is Gym's API before 0.26. Return (obs, reward, terminated, truncated, info) from step and (obs, info) from "
    "reset(seed=…), or wrap an environment of the package gym: shimmy.GymV21CompatibilityV0(env=…)"
)


def make_env(make: Callable[[int], Any], index: int) -> Any:
    """Makes environment `index` and checks that it is one.

    Raises:
        EnvError: the maker failed, or gave something else; the message names the environment.
    """
    try:
        with watched():
            env = make(index)
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise EnvError(f"environment {index} could not be made: {described(error)}", index) from error
    wrong = check_env(env)
    if wrong:
        raise EnvError(f"environment {index} {wrong}", index)
    return env


def close_env(env: Any, index: int) -> None:
    """Closes an environment, if it has `close`.

    Raises:
        EnvError: close() raised; the message names the environment.
    """
    try:
        getattr(env, "close", _nothing)()
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise EnvError(f"environment {index}: close() raised {described(error)}", index) from error


def _nothing() -> None:
    pass


def check_env(env: Any) -> str:
    """Returns why this is no environment that can be stepped, or ""."""
    name = env.__name__ if isinstance(env, type) else type(env).__name__
    if env is None:
        return "is None: the maker must return an environment, as in lambda index: MyEnv()"
    if isinstance(env, type):
        return (
            f"is the class {name}, not an environment: the maker must call it, as in lambda index: {name}()"
        )
    if inspect.isroutine(env):
        return "is a function, not an environment: the maker must call it and return what it returns"
    if is_zoo(env):
        return wrong_zoo(env)
    return _other_kind(env, name) or _lacks(env, name)


def _other_kind(env: Any, name: str) -> str:
    """Returns the message for an environment of another library's kind, or ""."""
    packages = {kind.__module__.partition(".")[0] for kind in type(env).__mro__}
    if ("pufferlib" in packages and hasattr(env, "single_action_space")) or is_puffer(env):
        return (
            f"is the PufferEnv {name}: type env=pufferlib env.factory=module:make, where make(buf=None, seed=0) "
            "returns it (docs/pufferlib.md)"
        )
    if isinstance(env, gymnasium.vector.VectorEnv) or hasattr(env, "single_action_space"):
        return (
            f"is the vector environment {name}: return it from make(config) itself (docs/batched.md), or give a maker "
            "of one environment (gymnasium.make, not gymnasium.make_vec); env.num_envs then sets how many are made"
        )
    if hasattr(env, "step_async") and hasattr(env, "step_wait"):
        return (
            f"is the vector environment {name}, which is not supported: give a maker of one environment; "
            "env.num_envs sets how many are made"
        )
    if hasattr(env, "action_spec") and not hasattr(env, "action_space"):
        return (
            f"is the dm_env environment {name}, which is not supported: wrap it, "
            "shimmy.DmControlCompatibilityV0(env) gives Gymnasium's API"
        )
    space = getattr(env, "action_space", None)
    if type(space).__module__.partition(".")[0] == "gym":
        return (
            f"is {name} with spaces of the package gym, which Gymnasium has replaced: import gymnasium instead of gym, "
            "or wrap it, shimmy.GymV21CompatibilityV0(env=…) or shimmy.GymV26CompatibilityV0(env=…)"
        )
    return ""


def _lacks(env: Any, name: str) -> str:
    """Returns what an environment lacks of Gymnasium's API, or ""."""
    missing = [part for part in ("observation_space", "action_space") if not _space(env, part)]
    missing += [part for part in ("reset", "step") if not callable(getattr(env, part, None))]
    if missing:
        found = getattr(env, missing[0], None)
        given = "" if found is None else f" ({missing[0]} is {type(found).__name__})"
        return f"is {name} without {' and '.join(missing)}{given}: expected Gymnasium's API, {API}"
    if not takes(env.reset, seed=0):
        return (
            f"is {name}, whose reset takes no seed: write reset(self, *, seed=None, options=None); {OLD_API}"
        )
    if not takes(env.step, 0):
        return f"is {name}, whose step does not take an action alone: write step(self, action)"
    return ""


def _space(env: Any, name: str) -> bool:
    return isinstance(getattr(env, name, None), spaces.Space)


# ── how many agents ──


def num_agents(env: Any, parts: Sequence[Part], index: int = 0) -> int | None:
    """Returns the number of agents of an environment of several; None if it is one agent with Gymnasium's API.

    An attribute num_agents alone says nothing: an environment of one agent may count its opponents there. Where it or
    what it wraps has one, the environment is reset once, and its observation decides by its shape.

    Raises:
        EnvError: reset failed, or the observation fits neither.
    """
    count = _counted(env)
    if count is None:
        return None
    try:
        obs = env.reset(seed=0)
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise EnvError(f"environment {index} raised {described(error)}", index) from error
    obs = obs[0] if isinstance(obs, tuple) and len(obs) == 2 else obs
    if _fits(obs, parts[0], ()):
        return None
    if _fits(obs, parts[0], (count,)):
        return count
    if isinstance(env, gymnasium.Env):
        return None  # its rows name what is wrong
    return count


def _fits(obs: Any, part: Part, agents: tuple[int, ...]) -> bool:
    try:
        return np.shape(part.find(obs)) == (*agents, *part.shape)
    except (FieldError, ValueError, TypeError):
        return False


def _counted(env: Any) -> int | None:
    """Returns the whole number `num_agents` of the environment, or of one that it wraps."""
    for layer in layers(env):
        count = getattr(layer, "num_agents", None)
        if isinstance(count, (int, np.integer)) and not isinstance(count, bool) and count >= 1:
            return int(count)
    return None


# ── what reset and step give ──


def reset_result(result: Any) -> Any:
    """Returns the observation of `reset`'s result. Raises FieldError with what is wrong."""
    if (
        isinstance(result, tuple)
        and len(result) == 2
        and (result[1] is None or isinstance(result[1], Mapping))
    ):
        return result[0]
    raise FieldError(f"reset() gave {_given(result)}, expected (observation, info); {OLD_API}")


def step_result(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Returns `step`'s result. Raises FieldError with what is wrong."""
    if isinstance(result, tuple) and len(result) == 5:
        return result  # type: ignore[return-value]
    old = f"; {OLD_API}" if isinstance(result, tuple) and len(result) == 4 else ""
    raise FieldError(
        f"step() gave {_given(result)}, expected (obs, reward, terminated, truncated, info){old}"
    )


def _given(result: Any) -> str:
    if isinstance(result, tuple):
        return f"tuple of {len(result)}"
    return "None" if result is None else f"{type(result).__name__} alone"
