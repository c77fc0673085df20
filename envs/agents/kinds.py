"""Finds out what kind of Python environment this is: one agent with Gymnasium's API, or several in one of their forms.

    kind = kind_of(env)                     # its spaces, before its observation is taken apart
    kind = kind.counted(env, parts)         # how many agents, and the slot that steps them

Place in the flow: PythonEnvFactory (python_env.py) asks when it is made. A new form of environment gets a function here
and a slot beside arrays.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gymnasium import spaces

from metta_fast.envs.agents.arrays import Arrays
from metta_fast.envs.agents.slot import AgentsSlot
from metta_fast.envs.python_checks import num_agents
from metta_fast.envs.spaces import Part


@dataclass(frozen=True)
class Kind:
    """What a factory has to know of an environment. The spaces are those of one agent."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    slot: type[AgentsSlot] | None = None
    """Steps the environment's agents; None: one agent with Gymnasium's API, or not known yet."""
    names: tuple[str, ...] = ()
    """The agents' names, in order of their rows; (): they have none."""
    agents: int = 1

    def counted(self, env: Any, parts: Sequence[Part]) -> Kind:
        """Returns the kind with its number of agents and its slot.

        Raises:
            EnvError: the environment has to be reset for that, and fails, or fits neither one agent nor several.
        """
        if self.slot is not None:
            return self
        count = num_agents(env, parts)
        return self if count is None else replace(self, slot=Arrays, agents=count)


def kind_of(env: Any) -> Kind:
    """Returns the kind of an environment that passed python_checks.check_env."""
    return Kind(env.observation_space, env.action_space)
