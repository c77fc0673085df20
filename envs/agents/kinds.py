"""Finds out what kind of Python environment this is: one agent with Gymnasium's API, or several in one of their forms.

    kind = kind_of(env)                     # its spaces, before its observation is taken apart
    kind = kind.counted(env, parts)         # how many agents, and the slot that steps them

Place in the flow: PythonEnvFactory (python_env.py) asks when it is made. A new form of environment gets a function here
and a slot beside arrays.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gymnasium import spaces

from metta_fast.config.extension import described
from metta_fast.contracts.env import EnvError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.agents.arrays import Arrays
from metta_fast.envs.agents.joint_space import Fit, joined_spaces
from metta_fast.envs.agents.parallel import Parallel
from metta_fast.envs.agents.slot import AgentsSlot
from metta_fast.envs.agents.zoo import is_zoo
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
    fits: tuple[Fit, ...] | None = None
    """How each agent's own values fit into the rows; None: all are alike."""
    masked: bool = False
    """True: some agent lacks choices that others have, so that rows have an action mask in any case."""

    def counted(self, env: Any, parts: Sequence[Part]) -> Kind:
        """Returns the kind with its number of agents and its slot.

        Raises:
            EnvError: the environment has to be reset for that, and fails, or fits neither one agent nor several.
        """
        if self.slot is not None:
            return self
        count = num_agents(env, parts)
        return self if count is None else replace(self, slot=Arrays, agents=count)


def kind_of(env: Any, *, pad: bool = False) -> Kind:
    """Returns the kind of an environment that passed python_checks.check_env.

    Args:
        pad: agents of different spaces are padded (env.pad).

    Raises:
        UserError: agents of different spaces without `pad`, or which cannot be padded.
        EnvError: the environment gave something that is no space.
    """
    if not is_zoo(env):
        return Kind(env.observation_space, env.action_space)
    found = {
        agent: (_space(env.observation_space, agent), _space(env.action_space, agent))
        for agent in env.possible_agents
    }
    joint = joined_spaces(found, pad)
    return Kind(
        joint.observation,
        joint.action,
        Parallel,
        tuple(found),
        len(found),
        joint.fits,
        masked=joint.masked,
    )


def _space(ask: Callable[[Any], Any], agent: Any) -> spaces.Space[Any]:
    """Returns the space that the environment gives for an agent. Raises EnvError."""
    name = getattr(ask, "__name__", "observation_space")
    try:
        space = ask(agent)
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise EnvError(f"environment 0: {name}({agent!r}) raised {described(error)}", 0) from error
    if not isinstance(space, spaces.Space):
        raise EnvError(
            f"environment 0: {name}({agent!r}) gave {type(space).__name__}, expected a space of Gymnasium", 0
        )
    return space
