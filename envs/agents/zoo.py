"""Tells PettingZoo's environments from others, and makes parallel ones of all of them.

PettingZoo is imported only for an environment whose agents take turns (AECEnv): its own conversion makes that parallel.

    is_zoo(env)          # a ParallelEnv or AECEnv, or something with the same attributes
    wrong_zoo(env)       # "", or why it cannot be stepped
    game = as_parallel(env)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from metta_fast.machine.installation import install_packages

PARALLEL = (
    "reset(seed=…) returns observations, infos, and step(actions) observations, rewards, terminations, truncations, "
    "infos, each a dict by agent"
)
AEC = ("last", "observe", "step", "reset")
"""Methods of an environment whose agents act in turns."""


def is_zoo(env: Any) -> bool:
    """Returns whether the environment has PettingZoo's API, or is derived from it."""
    packages = {kind.__module__.partition(".")[0] for kind in type(env).__mro__}
    if hasattr(env, "single_observation_space"):  # a PufferEnv, of a parallel environment or not
        return False
    if "pettingzoo" in packages:
        return True
    if hasattr(env, "possible_agents"):
        return True
    asked = all(callable(getattr(env, name, None)) for name in ("observation_space", "action_space"))
    return asked and (hasattr(env, "agents") or hasattr(env, "agent_selection"))


def is_turn_taking(env: Any) -> bool:
    """Returns whether its agents act one after another (AECEnv)."""
    kinds = {kind.__name__ for kind in type(env).__mro__ if kind.__module__.startswith("pettingzoo.")}
    if "ParallelEnv" in kinds:
        return False
    return "AECEnv" in kinds or all(callable(getattr(env, name, None)) for name in AEC)


def is_maker(made: Any) -> bool:
    """Returns whether this is called to make an environment, and is none itself."""
    return callable(made) and (isinstance(made, type) or not hasattr(made, "action_space"))


@dataclass(frozen=True)
class Again:
    """Makes each environment by calling make(config) again, where that returns the environment itself."""

    make: Callable[[Any], Any]
    config: Any

    def __call__(self, index: int) -> Any:
        return self.make(self.config)


def wrong_zoo(env: Any) -> str:
    """Returns why an environment with PettingZoo's API cannot be stepped, or ""."""
    name = type(env).__name__
    agents = getattr(env, "possible_agents", None)
    if not isinstance(agents, (list, tuple)) or not agents:
        given = "without possible_agents" if agents is None else f"with possible_agents={agents!r}"
        return (
            f"is the PettingZoo environment {name} {given}: set self.possible_agents to a list of all agents that may "
            "ever come"
        )
    if len(set(agents)) != len(agents):
        return (
            f"is the PettingZoo environment {name}, whose possible_agents has an agent twice: {list(agents)}"
        )
    missing = [
        part
        for part in ("observation_space", "action_space", "reset", "step")
        if not callable(getattr(env, part, None))
    ]
    if missing:
        return (
            f"is {name} without {' and '.join(f'{part}()' for part in missing)}, so neither a ParallelEnv nor an "
            f"AECEnv of PettingZoo: a parallel one has observation_space(agent) and action_space(agent), {PARALLEL}"
        )
    if is_turn_taking(env) and not _conversions():
        return (
            f"is the AECEnv {name}, which PettingZoo's conversion makes parallel, and PettingZoo is not installed: "
            f"type {install_packages('pettingzoo')}, or give a ParallelEnv"
        )
    return ""


def _conversions() -> Any:
    try:
        from pettingzoo.utils import conversions
    except ImportError:
        return None
    return conversions


def as_parallel(env: Any) -> Any:
    """Returns a parallel environment: the given one, or an AECEnv in PettingZoo's conversion. Its `aec_env` then is the
    one whose agents take turns, where only one of them acts in a step (takes_turns). It has the AECEnv's state_dict and
    load_state_dict, if there are any."""
    if not is_turn_taking(env):
        return env
    conversions = _conversions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an environment without render_mode
        if (getattr(env, "metadata", None) or {}).get("is_parallelizable", False):
            found = conversions.aec_to_parallel(env)
        else:
            found = conversions.turn_based_aec_to_parallel(env)
    if is_savable(env):
        found.state_dict, found.load_state_dict = env.state_dict, partial(_load, found)
    return found


def is_savable(env: Any) -> bool:
    """Returns whether the environment's state can be saved and loaded."""
    return hasattr(env, "state_dict") and hasattr(env, "load_state_dict")


def _load(found: Any, state: Any) -> None:
    """Loads an AECEnv's state into its conversion, which keeps a list of agents of its own. PettingZoo's wrappers
    refuse to step what was never reset."""
    found.reset(seed=0)
    found.aec_env.load_state_dict(state)
    found.agents = found.aec_env.agents[:]


def takes_turns(game: Any) -> Any:
    """Returns the AECEnv of a conversion in which one agent acts in each step, while the others wait; else None."""
    conversions = _conversions() if hasattr(game, "aec_env") else None
    if conversions is None or not isinstance(game, conversions.turn_based_aec_to_parallel_wrapper):
        return None
    return game.aec_env
