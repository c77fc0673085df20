"""PufferEnvs and creators, for env=pufferlib env.factory=tests.envs.puffer_tasks:…"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

import metta_fast.compat.pufferlib as ours


def same_bit(base: Any) -> Any:
    """A class over this base: each of four agents is shown a bit and names it; episodes of eight steps, staggered."""

    class SameBit(base):
        def __init__(self, agents: int = 4, buf: Any = None, seed: int = 0) -> None:
            self.single_observation_space = spaces.Box(0, 1, (2,), np.float32)
            self.single_action_space = spaces.Discrete(2)
            self.num_agents = agents
            super().__init__(buf)

        def reset(self, seed: int | None = None) -> tuple[Any, list]:
            self.random = np.random.default_rng(seed)
            self.steps = np.arange(self.num_agents) % 8
            self.right = np.zeros(self.num_agents)
            self.terminals[:] = self.truncations[:] = False
            self.rewards[:] = 0
            self._show()
            return self.observations, []

        def _show(self) -> None:
            self.bits = self.random.integers(0, 2, self.num_agents)
            self.observations[:, 0], self.observations[:, 1] = self.bits, 1 - self.bits

        def step(self, actions: Any) -> tuple[Any, ...]:
            self.rewards[:] = actions == self.bits
            self.right += self.rewards
            self.steps += 1
            self.terminals[:] = self.steps == 8
            ended = self.terminals.copy()
            infos = [{"right": self.right[ended].tolist()}] if ended.any() else []
            self.steps[ended], self.right[ended] = 0, 0
            self._show()
            return self.observations, self.rewards, self.terminals, self.truncations, infos

        def close(self) -> None:
            pass

    return SameBit


make = same_bit(ours.PufferEnv)


def of_the_package(agents: int = 4, buf: Any = None, seed: int = 0) -> Any:
    """The same over the package's base class. Importing its trainer must change nothing in the process."""
    import pufferlib
    import pufferlib.pufferl

    return same_bit(pufferlib.PufferEnv)(agents, buf, seed)


class Reach(ours.PufferEnv):
    """Box: one agent gives numbers back, which must be within the bounds, in float64."""

    def __init__(self, buf: Any = None, seed: int = 0) -> None:
        self.single_observation_space = spaces.Box(-1, 1, (3,), np.float64)
        self.single_action_space = spaces.Box(-1, 1, (2, 1), np.float64)
        self.num_agents = 1
        super().__init__(buf)
        self.got: list[Any] = []

    def reset(self, seed: int | None = None) -> tuple[Any, list]:
        self.observations[:] = 0.5
        return self.observations, []

    def step(self, actions: Any) -> tuple[Any, ...]:
        self.got.append(actions.copy())
        self.rewards[:] = actions.sum()
        return self.observations, self.rewards, self.terminals, self.truncations, []

    def close(self) -> None:
        pass
