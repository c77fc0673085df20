"""Provides small environments with known rows: every value follows from the step's number."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

from metta_fast.envs.python_env import PythonEnvFactory


class Ticker:
    """Observation [environment, episode, step]; episodes of 3 … 9 steps end by turns terminal and truncated.

    The reward of a step is step + 10 · (first action's number == step mod 3).
    """

    action_space: Any = MultiDiscrete([3, 2])

    def __init__(self, index: int, *, delay_s: float = 0.0, box: bool = False) -> None:
        self.index, self.delay_s = index, delay_s
        self.observation_space = Box(-1e6, 1e6, (3,), np.float32)
        if box:
            self.action_space = Box(-1, 1, (2,), np.float32)
        self.episode = self.step_of = -1
        self.clock = np.random.default_rng()

    def _obs(self) -> np.ndarray:
        return np.array([self.index, self.episode, self.step_of], np.float32)

    def length(self) -> int:
        return 3 + (self.index * 5 + self.episode * 3) % 7

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.episode, self.step_of = self.episode + 1, 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.delay_s:
            time.sleep(self.clock.uniform(0, self.delay_s))
        reward = self.step_of + 10.0 * (int(np.asarray(action).flat[0]) == self.step_of % 3)
        self.step_of += 1
        ends = self.step_of == self.length()
        return self._obs(), reward, ends and self.episode % 2 == 0, ends and self.episode % 2 == 1, {}

    def state_dict(self) -> dict[str, Any]:
        return {"episode": self.episode, "step_of": self.step_of}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episode, self.step_of = state["episode"], state["step_of"]

    def close(self) -> None:
        pass


class Seen(Ticker):
    """A Ticker whose observation lies beside itself: `critic`, which is for the value alone."""

    metadata: Any = {"privileged": ["critic"]}  # noqa: RUF012 - Gymnasium's own form

    def __init__(self, index: int, **keys: Any) -> None:
        super().__init__(index, **keys)
        self.observation_space = Dict(dict.fromkeys(("critic", "obs"), self.observation_space))

    def _obs(self) -> Any:
        return {name: super(Seen, self)._obs() for name in ("critic", "obs")}


def counted(factory: Any, num_envs: int) -> Any:
    """The factory, and with it how many environments `make_ppo` makes by it."""
    factory.envs = num_envs
    return factory


def seen(num_envs: int, **keys: Any) -> PythonEnvFactory:
    return counted(PythonEnvFactory(lambda index: Seen(index, **keys), name="seen"), num_envs)


def tickers(num_envs: int, **keys: Any) -> PythonEnvFactory:
    return counted(PythonEnvFactory(lambda index: Ticker(index, **keys), name="ticker"), num_envs)


class Line(gymnasium.Env):
    """Observation [step]; each step rewards 1. Ends after `length` steps with the given flags."""

    def __init__(
        self, length: int = 4, *, terminated: bool = False, truncated: bool = True, start: int = 0
    ) -> None:
        self.observation_space = Box(0, 1e6, (1,), np.float32)
        self.action_space = Discrete(2, start=start)
        self.length, self.flags, self.step_of = length, (terminated, truncated), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.step_of = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.step_of += 1
        ends = self.step_of == self.length
        return np.full(1, self.step_of, np.float32), 1.0, ends and self.flags[0], ends and self.flags[1], {}
