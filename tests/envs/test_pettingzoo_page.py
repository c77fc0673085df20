"""Runs the wrapper for PettingZoo environments of docs/environments.md with an environment of the same API."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.vector import make_vector

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()


class Race:
    """As pettingzoo.ParallelEnv: agent b is gone after two steps, a after three."""

    possible_agents = ("a", "b")

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 9, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3, start=4)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.t = ["a", "b"], 0
        return {agent: np.ones(2, np.float32) for agent in self.agents}, {}

    def step(self, actions: dict[str, int]) -> Any:
        assert actions.keys() == set(self.agents)
        assert all(self.action_space(agent).contains(action) for agent, action in actions.items())
        self.t += 1
        over = {agent: self.t == (2 if agent == "b" else 3) for agent in self.agents}
        obs = {agent: np.full(2, self.t, np.float32) for agent in self.agents}
        reward = dict.fromkeys(self.agents, 1.0)
        self.agents = [agent for agent in self.agents if not over[agent]]
        return obs, reward, over, dict.fromkeys(obs, False), {}

    def close(self) -> None: ...


def test_the_pages_wrapper_steps_and_resets_a_parallel_environment():
    found = re.search(r"\n    class Together:.*?\n(?=    def make)", PAGE, re.DOTALL)
    assert found is not None
    space: dict[str, Any] = {"np": np}
    exec(textwrap.dedent(found.group()), space)
    factory = PythonEnvFactory(lambda index: space["Together"](Race()))
    assert factory.spec.agents_per_env == 2
    seen = []
    with make_vector(factory, 1) as vec:
        vec.async_reset(0)
        for _ in range(6):
            block = vec.recv()
            seen.append(
                (block.rows.obs["obs"][:, 0].tolist(), block.rows.mask.tolist(), block.rows.reward.tolist())
            )
            vec.send(block)
    assert seen == [
        ([1, 1], [True, True], [0, 0]),
        ([1, 1], [True, True], [1, 1]),
        ([2, 2], [True, False], [1, 1]),
        ([3, 0], [False, False], [1, 0]),
        ([1, 1], [True, True], [0, 0]),
        ([1, 1], [True, True], [1, 1]),
    ]
