"""Defines the base class of environments that step several agents over arrays: PufferEnv.

    class Mine(pufferlib.PufferEnv):
        def __init__(self, buf=None, seed=0):
            self.single_observation_space = gymnasium.spaces.Box(0, 1, (4,), np.float32)
            self.single_action_space = gymnasium.spaces.Discrete(2)
            self.num_agents = 16
            super().__init__(buf)

        def reset(self, seed=None): …; return self.observations, []
        def step(self, actions): …; return self.observations, self.rewards, self.terminals, self.truncations, []

`reset` and `step` write the buffers in place. The environment resets itself: in the step that ends an agent's episode,
`observations` already has the first of the next one. infos are a list of dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from metta_fast.compat.pufferlib.errors import APIUsageError
from metta_fast.compat.pufferlib.spaces import joint_space
from metta_fast.envs.puffer.placed import BUFFERS, action_dtype


def set_buffers(env: Any, buf: Mapping[str, Any] | None = None) -> None:
    """Gives the environment its buffers: those of `buf`, or new ones.

    observations [N, *shape], rewards [N] float32, terminals, truncations, masks [N] bool; actions and teacher_actions
    [N, *shape of an action] int32, of a Box its dtype.
    """
    if buf is not None:
        for name in BUFFERS:
            if name in buf:
                setattr(env, name, buf[name])
        if "teacher_actions" not in buf:
            env.teacher_actions = np.zeros_like(env.actions)
        return
    n, space = env.num_agents, env.single_action_space
    env.observations = np.zeros((n, *env.single_observation_space.shape), env.single_observation_space.dtype)
    env.rewards = np.zeros(n, np.float32)
    env.terminals, env.truncations = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    env.masks = np.ones(n, np.bool_)
    env.actions = np.zeros((n, *space.shape), action_dtype(space))
    env.teacher_actions = np.zeros_like(env.actions)


class HasBuffers:
    """Names the arrays that `set_buffers` gives."""

    observations: Any
    rewards: Any
    terminals: Any
    truncations: Any
    masks: Any
    actions: Any
    teacher_actions: Any


class PufferEnv(HasBuffers):
    """Steps `num_agents` agents together (see the module's docstring).

    Raises:
        APIUsageError: spaces or num_agents are missing, or are none that a PufferEnv can have.
    """

    single_observation_space: Any
    single_action_space: Any
    num_agents: int
    teacher_in_recv = False
    """True: `recv` returns teacher_actions as the fifth of eight, as pufferlib-core's does."""

    def __init__(self, buf: Mapping[str, Any] | None = None) -> None:
        for name in ("single_observation_space", "single_action_space", "num_agents"):
            if not hasattr(self, name):
                raise APIUsageError(
                    f"{type(self).__name__} has no {name}: set it before super().__init__(buf)"
                )
        for name in ("observation_space", "action_space"):
            if hasattr(self, name):
                raise APIUsageError(f"{type(self).__name__} has {name}: define single_{name} instead")
        if self.num_agents < 1:
            raise APIUsageError(f"num_agents={self.num_agents}: expected at least 1")
        if not isinstance(self.single_observation_space, spaces.Box):
            raise APIUsageError(
                f"single_observation_space is {self.single_observation_space}: expected a Box"
            )
        if not isinstance(self.single_action_space, (spaces.Discrete, spaces.MultiDiscrete, spaces.Box)):
            raise APIUsageError(
                f"single_action_space is {self.single_action_space}: expected Discrete, MultiDiscrete or Box"
            )
        self.metadata = dict(getattr(self, "metadata", None) or {"render_modes": []})
        set_buffers(self, buf)
        sent = getattr(self, "single_transport_action_space", self.single_action_space)
        self.observation_space = joint_space(self.single_observation_space, self.num_agents)
        self.action_space = joint_space(sent, self.num_agents)
        self.agent_ids = np.arange(self.num_agents)
        self.infos: list[Any] = []

    @property
    def agents_per_batch(self) -> int:
        return self.num_agents

    agent_per_batch = agents_per_batch

    @property
    def emulated(self) -> Any:
        return False

    @property
    def done(self) -> bool:
        """False: the environment resets itself."""
        return False

    @property
    def driver_env(self) -> PufferEnv:
        return self

    def reset(self, seed: int | None = None) -> tuple[Any, list[Any]]:
        """Starts all episodes. Returns (observations, infos)."""
        raise NotImplementedError

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, list[Any]]:
        """Steps all agents. Returns (observations, rewards, terminals, truncations, infos)."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def notify(self) -> None:
        """Called after a vector's `notify`."""

    def async_reset(self, seed: int | None = None) -> None:
        self.infos = _list(self.reset(seed)[1])

    def send(self, actions: Any) -> None:
        self.infos = _list(self.step(actions)[4])

    def recv(self) -> tuple[Any, ...]:
        """Returns (observations, rewards, terminals, truncations, infos, agent_ids, masks)."""
        teacher = (self.teacher_actions,) if self.teacher_in_recv else ()
        flags = self.terminals, self.truncations
        return self.observations, self.rewards, *flags, *teacher, self.infos, self.agent_ids, self.masks


def _list(infos: Any) -> list[Any]:
    if not isinstance(infos, list):
        raise APIUsageError(f"infos is {type(infos).__name__}: a PufferEnv returns a list of dicts")
    return infos
