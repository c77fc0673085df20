"""Makes PufferEnvs of Gymnasium's and PettingZoo's environments: GymnasiumPufferEnv, PettingZooPufferEnv.

    def make(buf=None, seed=0):
        env = pufferlib.EpisodeStats(gymnasium.make("CartPole-v1"))
        return pufferlib.emulation.GymnasiumPufferEnv(env=env, buf=buf, seed=seed)

    vec = pufferlib.vector.make(make, num_envs=8, backend=pufferlib.vector.Multiprocessing)

They do not reset themselves: `done` says that the next call must be `reset`. The row of an episode's last step has its
true last observation. What spaces become: emulated_spaces.py.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from metta_fast.compat.pufferlib.emulated_spaces import (
    Actions,
    Rows,
    dtype_from_space,
    emulate_action_space,
    emulate_observation_space,
    flatten_space,
    get_dtype_bounds,
)
from metta_fast.compat.pufferlib.errors import APIUsageError, InvalidAgentError
from metta_fast.compat.pufferlib.puffer_env import HasBuffers, set_buffers
from metta_fast.config.extension import takes
from metta_fast.envs.direct_step import direct_step

__all__ = [
    "GymnasiumPufferEnv",
    "PettingZooPufferEnv",
    "check_space",
    "dtype_from_space",
    "emulate_action_space",
    "emulate_observation_space",
    "flatten_space",
    "get_dtype_bounds",
    "make_object",
    "pad_agent_data",
]


class _Emulated(HasBuffers):
    """Holds the parts that both have: the environment, its spaces as a PufferEnv's, the buffers."""

    env: Any

    def _take(self, observation_space: Any, action_space: Any, num_agents: int, buf: Any) -> None:
        self.num_agents = num_agents
        self.single_observation_space, self.obs_dtype = emulate_observation_space(observation_space)
        self.single_action_space, self.atn_dtype = emulate_action_space(action_space)
        self.is_obs_emulated = self.single_observation_space is not observation_space
        self.is_atn_emulated = self.single_action_space is not action_space
        self.emulated = {
            "observation_dtype": self.single_observation_space.dtype,
            "emulated_observation_dtype": self.obs_dtype,
        }
        self.initialized = False
        self._checked_observation = self._checked_action = False
        set_buffers(self, buf)
        self._rows = Rows(observation_space, self.obs_dtype, self.observations)
        self._actions = Actions(action_space, self.is_atn_emulated)

    def _ready(self, done: bool) -> None:
        if not self.initialized:
            raise APIUsageError("step() was called before reset(): call reset first")
        if done:
            raise APIUsageError("step() was called after the episode's end: call reset first")

    @property
    def render_mode(self) -> Any:
        return self.env.render_mode

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class GymnasiumPufferEnv(_Emulated, gymnasium.Env):  # type: ignore[misc, override]
    """Makes a PufferEnv of one agent.

    Args:
        env: the environment, or `env_creator`, called with env_args and env_kwargs.
        buf: the buffers, as a vector gives them; None: new ones.
        seed: has no effect here, as in PufferLib: `reset` takes the seed.
    """

    def __init__(
        self,
        env: Any = None,
        env_creator: Callable[..., Any] | None = None,
        env_args: Sequence[Any] = (),
        env_kwargs: Mapping[str, Any] | None = None,
        buf: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.env = make_object(env, env_creator, env_args, env_kwargs)
        self.done = True
        self._take(self.env.observation_space, self.env.action_space, 1, buf)
        self.observation_space, self.action_space = self.single_observation_space, self.single_action_space
        self.render_modes = ["human", "rgb_array"]
        self._step = direct_step(self.env)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:  # type: ignore[override]
        """Starts an episode. Returns (observations [1, *shape], info)."""
        obs, info = seeded_reset(self.env, seed)
        self.initialized, self.done = True, False
        self._write(obs, 0.0, False, False)
        return self.observations, info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:  # type: ignore[override]
        """Steps. Returns (observations [1, *shape], reward, terminated, truncated, info)."""
        if self.done:
            self._ready(self.done)
        if isinstance(action, np.ndarray):
            action = action.reshape(-1)
        action = self._actions.decode(action)
        if not self._checked_action:
            self._checked_action = check_space(action, self.env.action_space)
        obs, reward, terminal, truncation, info = self._step(action)
        if type(reward) is not float:
            reward = float(np.sum(reward))  # a team's rewards add up
        if type(terminal) is not bool or type(truncation) is not bool:
            terminal, truncation = bool(np.any(terminal)), bool(np.any(truncation))
        self._write(obs, reward, terminal, truncation)
        self.done = terminal or truncation
        return self.observations, reward, terminal, truncation, info

    def _write(self, obs: Any, reward: float, terminal: bool, truncation: bool) -> None:
        if not self._checked_observation:
            self._checked_observation = check_space(obs, self.env.observation_space)
        self._rows.write(0, obs)
        self.rewards[0], self.masks[0] = reward, True
        self.terminals[0], self.truncations[0] = terminal, truncation


class PettingZooPufferEnv(_Emulated):
    """Makes a PufferEnv of PettingZoo's parallel environment: its agents are `possible_agents`, which have the spaces
    of the first. Arguments: as of GymnasiumPufferEnv.

    The row of an agent that is absent has mask False, terminal True, and zeros for observation and reward.
    """

    def __init__(
        self,
        env: Any = None,
        env_creator: Callable[..., Any] | None = None,
        env_args: Sequence[Any] = (),
        env_kwargs: Mapping[str, Any] | None = None,
        buf: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        self.env = make_object(env, env_creator, env_args, env_kwargs)
        first = self.env.possible_agents[0]
        self.env_single_observation_space = self.env.observation_space(first)
        self.env_single_action_space = self.env.action_space(first)
        agents = len(self.env.possible_agents)
        self._take(self.env_single_observation_space, self.env_single_action_space, agents, buf)
        self.all_done = True
        self.mask: dict[Any, bool] = {}
        self.dict_obs = {agent: self.observations[i] for i, agent in enumerate(self.possible_agents)}

    @property
    def agents(self) -> list[Any]:
        return self.env.agents  # type: ignore[no-any-return]

    @property
    def possible_agents(self) -> list[Any]:
        return self.env.possible_agents  # type: ignore[no-any-return]

    @property
    def done(self) -> bool:
        """Whether the episode is over for all agents."""
        return len(self.agents) == 0 or self.all_done

    def observation_space(self, agent: Any) -> Any:
        self._check_agent(agent)
        return self.single_observation_space

    def action_space(self, agent: Any) -> Any:
        self._check_agent(agent)
        return self.single_action_space

    def reset(self, seed: int | None = None) -> tuple[dict[Any, Any], Any]:
        """Starts an episode. Returns ({agent: observation}, infos)."""
        obs, info = seeded_reset(self.env, seed)
        self.initialized, self.all_done = True, False
        self.rewards[:], self.terminals[:], self.truncations[:] = 0, False, False
        for i, agent in enumerate(self.possible_agents):
            self._write(i, agent, obs)
        return self.dict_obs, info

    def step(self, actions: Any) -> tuple[dict[Any, Any], Any, Any, Any, Any]:
        """Steps all agents. actions: [N, *shape of an action], or {agent: action}.

        Returns:
            ({agent: observation}, {agent: reward}, {agent: terminated}, {agent: truncated}, infos) of all possible
            agents.
        """
        self._ready(self.done)
        if isinstance(actions, np.ndarray):
            if len(actions) != self.num_agents:
                raise APIUsageError(f"actions of {len(actions)} agents, expected those of {self.num_agents}")
            actions = dict(zip(self.possible_agents, actions))
        live = set(self.agents)
        chosen = {}
        for agent, action in actions.items():
            self._check_agent(agent)
            if agent in live:
                chosen[agent] = self._actions.decode(action)
        if chosen and not self._checked_action:
            self._checked_action = check_space(next(iter(chosen.values())), self.env_single_action_space)
        obs, rewards, terminals, truncations, infos = self.env.step(chosen)
        for i, agent in enumerate(self.possible_agents):
            here = self._write(i, agent, obs)
            self.rewards[i] = rewards[agent] if here else 0
            self.terminals[i] = terminals[agent] if here else True
            self.truncations[i] = truncations[agent] if here else False
        self.all_done = all(terminals.values()) or all(truncations.values())
        padded = (pad_agent_data(*pair) for pair in self._padded(rewards, terminals, truncations))
        return self.dict_obs, *padded, infos  # type: ignore[return-value]

    def _padded(self, rewards: Any, terminals: Any, truncations: Any) -> Any:
        agents = self.possible_agents
        return (rewards, agents, 0), (terminals, agents, True), (truncations, agents, False)

    def _write(self, i: int, agent: Any, obs: Mapping[Any, Any]) -> bool:
        """Writes an agent's observation and mask. Returns whether it is there."""
        here = agent in obs
        if here:
            if not self._checked_observation:
                self._checked_observation = check_space(obs[agent], self.env.observation_space(agent))
            self._rows.write(i, obs[agent])
        else:
            self.observations[i] = 0
        self.masks[i] = self.mask[agent] = here
        return here

    def _check_agent(self, agent: Any) -> None:
        if agent not in self.possible_agents:
            raise InvalidAgentError(agent, self.possible_agents)


def pad_agent_data(data: Mapping[Any, Any], agents: Sequence[Any], pad_value: Any) -> dict[Any, Any]:
    """Returns {agent: value} of all agents, with pad_value for those that `data` lacks."""
    return {agent: data.get(agent, pad_value) for agent in agents}


def make_object(
    object_instance: Any = None,
    object_creator: Callable[..., Any] | None = None,
    creator_args: Sequence[Any] | None = None,
    creator_kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """Returns the object, or makes it. Raises ValueError unless one of both is given, TypeError for the wrong kind."""
    if (object_instance is None) == (object_creator is None):
        raise ValueError("give either env or env_creator")
    if object_creator is not None:
        if not callable(object_creator):
            raise TypeError(f"env_creator is {type(object_creator).__name__}: expected a class or function")
        return object_creator(*(creator_args or ()), **(creator_kwargs or {}))
    if inspect.isclass(object_instance) or inspect.isroutine(object_instance):
        raise TypeError("env is a class or function: give it as env_creator, or call it")
    return object_instance


def check_space(data: Any, space: Any) -> bool:
    """Returns True. Raises APIUsageError for a value that is not in the space."""
    try:
        inside = space.contains(data)
    except Exception as error:
        raise APIUsageError(f"{data!r} cannot be compared with {space}: {error}") from error
    if not inside:
        raise APIUsageError(f"{data!r} is not in {space}")
    return True


def seeded_reset(env: Any, seed: int | None) -> tuple[Any, Any]:
    """Resets an environment, with the seed where it takes one."""
    if seed is None:
        return env.reset()  # type: ignore[no-any-return]
    if takes(env.reset, seed=seed):
        return env.reset(seed=seed)  # type: ignore[no-any-return]
    if callable(getattr(env, "seed", None)):
        env.seed(seed)
    else:
        warnings.warn(f"{type(env).__name__} takes no seed: its runs cannot be repeated", stacklevel=2)
    return env.reset()  # type: ignore[no-any-return]
