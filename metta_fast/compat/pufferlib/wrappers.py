"""Provides PufferLib's wrappers: EpisodeStats and its like, as its users put them around their environments.

env = pufferlib.EpisodeStats(gymnasium.make("CartPole-v1"))          # info of an episode's last step: its return …
env = pufferlib.MultiagentEpisodeStats(parallel_env)                 # {agent: …} in infos
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np

from metta_fast.compat.pufferlib.misc import unroll_nested_dict


class EpisodeStats(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Replaces info: {} within an episode; at its end the sums of all numbers that info had, episode_return and
    episode_length."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._sums = _Sums()
        return self.env.reset(seed=seed) if options is None else self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._sums.add(reward, info)
        return obs, reward, terminated, truncated, self._sums.found() if terminated or truncated else {}


class _Sums:
    """Adds up an episode's rewards and the numbers of its infos; of a text, keeps the last."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._return, self._length = 0.0, 0

    def add(self, reward: Any, info: Any) -> None:
        self._return, self._length = self._return + reward, self._length + 1
        for name, value in unroll_nested_dict(info):
            if isinstance(value, str):
                self._values[name] = value
                continue
            try:
                self._values[name] = self._values.get(name, 0) + value
            except TypeError:
                self._values.pop(name, None)

    def found(self) -> dict[str, Any]:
        return {**self._values, "episode_return": self._return, "episode_length": self._length}


class ResizeObservation(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Keeps each `downscale`-th pixel of an image [height, width] in both directions."""

    def __init__(self, env: Any, downscale: int = 2) -> None:
        super().__init__(env)
        height, width = env.observation_space.shape
        if height % downscale or width % downscale:
            raise ValueError(f"an image of {height} × {width} cannot be divided by {downscale}")
        self.downscale = downscale
        shape = (height // downscale, width // downscale)
        self.observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return self._small(obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, *rest = self.env.step(action)
        return self._small(obs), *rest  # type: ignore[return-value]

    def _small(self, obs: Any) -> Any:
        return obs[:: self.downscale, :: self.downscale]


class ClipAction(gymnasium.Wrapper):  # type: ignore[type-arg]
    """Takes any number of the dtype as a continuous action, and clips it to the environment's bounds."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        space = env.action_space
        limits = np.finfo(space.dtype)
        self.action_space = gymnasium.spaces.Box(limits.min, limits.max, space.shape, space.dtype)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        space: Any = self.env.action_space
        return self.env.step(np.clip(action, space.low, space.high))


class GymToGymnasium:
    """Gives an environment of Gym's old API, with a single `done`, Gymnasium's."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["env"], name)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return (self.env.reset() if seed is None else self.env.reset(seed=seed)), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Any]:
        obs, reward, done, info = self.env.step(action)
        return obs, reward, done, False, info


class PettingZooWrapper:
    """Passes everything on to a parallel environment of PettingZoo."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        more = {} if options is None else {"options": options}
        return self.env.reset(seed=seed, **more)  # type: ignore[no-any-return]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        return self.env.step(actions)  # type: ignore[no-any-return]


class PettingZooTruncatedWrapper(PettingZooWrapper):
    """Gives infos at reset, empty for each agent."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        obs, _ = super().reset(seed)
        return obs, {agent: {} for agent in obs}


class MeanOverAgents(PettingZooWrapper):
    """Replaces infos by the means of their numbers over the agents."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        obs, infos = super().reset(seed, options)
        return obs, _means(infos.values())

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        obs, rewards, terminals, truncations, infos = self.env.step(actions)
        return obs, rewards, terminals, truncations, _means(infos.values())


def _means(infos: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for info in infos:
        for name, value in info.items():
            found.setdefault(name, []).append(value)
    numbers = {name: np.asarray(values) for name, values in found.items() if not _texts(values)}
    return {name: values.mean() for name, values in numbers.items() if values.dtype.kind in "biuf"}


def _texts(values: list[Any]) -> bool:
    """Whether these are no numbers, or arrays of different shapes."""
    return len({np.shape(value) for value in values}) > 1 or any(
        isinstance(value, (str, dict)) for value in values
    )


class MultiagentEpisodeStats(PettingZooWrapper):
    """Replaces infos by {agent: {}}; for an agent whose episode ends, by what EpisodeStats gives."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        obs, infos = super().reset(seed, options)
        self._sums = {agent: _Sums() for agent in self.env.possible_agents}
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        obs, rewards, terminals, truncations, infos = self.env.step(actions)
        found: dict[Any, Any] = {}
        for agent, info in infos.items():
            sums = self._sums[agent]
            sums.add(rewards[agent], info)
            found[agent] = sums.found() if terminals[agent] or truncations[agent] else {}
        return obs, rewards, terminals, truncations, found
