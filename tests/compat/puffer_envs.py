"""Environments as PufferLib's users write them, for its own package and for metta_fast.compat.pufferlib.

`lib` is either of both modules. Every environment counts up its seeds, so that tapes are equal step by step.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import metta_fast.compat.pufferlib as ours


def tracks(lib: Any = ours) -> Any:
    """A class of native PufferEnvs: each agent walks on a track and is reset at its end, or after a time limit."""

    class Tracks(lib.PufferEnv):
        def __init__(self, agents: int = 3, length: int = 4, buf: Any = None, seed: int = 0) -> None:
            self.single_observation_space = spaces.Box(-100, 100, (2,), np.float32)
            self.single_action_space = spaces.Discrete(3)
            self.num_agents, self.length, self.told = agents, length, 0
            super().__init__(buf)

        def reset(self, seed: int | None = None) -> tuple[Any, list]:
            self.random = np.random.default_rng(seed)
            self.at = self.random.integers(0, self.length, self.num_agents)
            self.steps = np.zeros(self.num_agents, int)
            self.rewards[:] = 0
            self.terminals[:] = self.truncations[:] = False
            self.masks[:] = True
            self._observe()
            return self.observations, [{"start": int(self.at.sum())}]

        def _observe(self) -> None:
            self.observations[:, 0], self.observations[:, 1] = self.at, self.steps

        def step(self, actions: Any) -> tuple[Any, ...]:
            self.actions[:] = actions
            self.at += self.actions - 1
            self.steps += 1
            self.rewards[:] = self.at
            self.terminals[:] = np.abs(self.at) >= self.length
            self.truncations[:] = (self.steps >= 9) & ~self.terminals
            ended = self.terminals | self.truncations
            self.at[ended] = self.random.integers(0, self.length, int(ended.sum()))
            self.steps[ended] = 0
            self.masks[0] = self.steps[0] != 3
            self._observe()
            infos = [{"score": float(self.rewards.sum()), "nested": {"ends": int(ended.sum())}}]
            return (
                self.observations,
                self.rewards,
                self.terminals,
                self.truncations,
                infos if ended.any() else [],
            )

        def notify(self) -> None:
            self.told += 1

        def close(self) -> None:
            pass

    return Tracks


class Mixed(gymnasium.Env):
    """Dict observation of several dtypes; a Dict action. Terminates by chance, truncates after 7 steps."""

    observation_space = spaces.Dict(
        {
            "number": spaces.Box(-10, 10, (2, 2), np.float32),
            "bytes": spaces.Box(0, 255, (3,), np.uint8),
            "pair": spaces.Tuple((spaces.Discrete(5), spaces.MultiBinary(2))),
        }
    )
    action_space: Any = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3)))
    render_mode = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.steps = 0
        return self._obs(), {}

    def _obs(self) -> dict[str, Any]:
        draw = self.random
        return {
            "number": draw.uniform(-10, 10, (2, 2)).astype(np.float32),
            "bytes": draw.integers(0, 256, 3, np.uint8),
            "pair": (int(draw.integers(5)), draw.integers(0, 2, 2, np.int8)),
        }

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self.steps += 1
        first, second = action
        ended = bool(self.random.random() < 0.2)
        return self._obs(), first + 10.0 * second, ended, self.steps >= 7, {"steps": self.steps}

    def close(self) -> None:
        pass


class Herd:
    """A parallel environment of PettingZoo's kind: agents come at different times, leave one by one."""

    metadata: dict = {}  # noqa: RUF012
    possible_agents = ["a_0", "a_1", "b_0"]  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-1, 99, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(4)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.agents, self.steps = list(self.possible_agents), 0
        return self._obs(), {agent: {} for agent in self.agents}

    def _obs(self) -> dict[str, Any]:
        return {a: np.array([self.steps, self.random.random()], np.float32) for a in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, ...]:
        assert set(actions) == set(self.agents)
        self.steps += 1
        rewards = {a: float(action) for a, action in actions.items()}
        ends = {a: bool(self.random.random() < 0.25) for a in self.agents}
        late = {a: self.steps >= 6 and not ends[a] for a in self.agents}
        obs = self._obs()
        self.agents = [a for a in self.agents if not ends[a] and not late[a]]
        return obs, rewards, ends, late, {a: {"last": rewards[a]} for a in obs}

    def close(self) -> None:
        pass


def _wrapper(lib: Any, name: str) -> Any:
    """pufferlib-core has the wrappers of pufferlib in its module of the same name."""
    return getattr(lib, name) if hasattr(lib, name) else getattr(lib.pufferlib, name)


def plain(config: Any) -> Any:
    return lambda index: Mixed()


def mixed(lib: Any = ours) -> Any:
    def make(buf: Any = None, seed: int = 0) -> Any:
        env = _wrapper(lib, "EpisodeStats")(Mixed())
        return lib.emulation.GymnasiumPufferEnv(env=env, buf=buf, seed=seed)

    return make


def herd(lib: Any = ours) -> Any:
    def make(buf: Any = None, seed: int = 0) -> Any:
        stats = _wrapper(lib, "MultiagentEpisodeStats")
        return lib.emulation.PettingZooPufferEnv(env_creator=lambda: stats(Herd()), buf=buf, seed=seed)

    return make


MAKERS = {"tracks": tracks, "mixed": mixed, "herd": herd}
