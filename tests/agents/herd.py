"""A small task of several agents with a known optimum: to name the number that one sees pays 1.

Agents pause at random, without a flag, and are said to see NaN then. "small" has two numbers, "big_0" and "big_1" have
four, so that the spaces differ. An episode is 16 steps; at best every step of an agent pays 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

STEPS = 16
NUMBERS = {"small": 2, "big_0": 4, "big_1": 4}


class Herd:
    possible_agents = tuple(NUMBERS)
    max_cycles = STEPS

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0, 1, (NUMBERS[agent],), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete[Any]:
        return spaces.Discrete(NUMBERS[agent])

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.t = 0
        self.agents = list(self.possible_agents)
        return self._show(), {}

    def _show(self) -> dict[str, Any]:
        self.number = {agent: int(self.rng.integers(n)) for agent, n in NUMBERS.items()}
        obs = {agent: np.full(n, np.nan, np.float32) for agent, n in NUMBERS.items()}
        for agent in self.agents:
            obs[agent] = np.eye(NUMBERS[agent], dtype=np.float32)[self.number[agent]]
        return obs

    def step(self, actions: dict[str, int]) -> Any:
        self.t += 1
        reward = dict.fromkeys(NUMBERS, np.nan)
        reward |= {agent: float(action == self.number[agent]) for agent, action in actions.items()}
        over = self.t == STEPS
        self.agents = [agent for agent in NUMBERS if self.rng.random() < 0.9] or ["small"]
        obs = self._show()
        ends = dict.fromkeys(self.agents, over)
        if over:
            self.agents = []
        return obs, reward, dict.fromkeys(NUMBERS, False), ends, {}


def make(config: Any) -> Herd:
    """Returns the environment itself."""
    return Herd()
