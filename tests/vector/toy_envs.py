"""Provides small Python environments for the vector tests, with one agent (Gymnasium) and with several."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

from metta_fast.envs.python_env import PythonEnvFactory


class Walk(gymnasium.Env):
    """A random walk with terminals and a time limit; draws from the env's own generator."""

    observation_space = spaces.Dict(
        {"place": spaces.Box(-99, 99, (2,), np.float32), "kind": spaces.Discrete(3, start=5)}
    )
    action_space = spaces.MultiDiscrete([3, 2])

    def __init__(self, index):
        self.index = index

    def observe(self):
        return {"kind": 5 + self.t % 3, "place": np.array([self.x, self.t], np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.np_random.normal()
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        self.x += float(action[0]) - 1 + self.np_random.normal()
        return self.observe(), self.x, abs(self.x) > 4, self.t >= 9, {"far": {"x": self.x}}

    def state_dict(self):
        return {"t": self.t, "x": self.x, "rng": self.np_random.bit_generator.state}

    def load_state_dict(self, state):
        self.t, self.x = state["t"], state["x"]
        super().reset(seed=0)
        self.np_random.bit_generator.state = state["rng"]


def walk_factory():
    return PythonEnvFactory(Walk, name="walk", stats=("far/x",))


class Crowd:
    """Three agents; agent k ends after 2+k steps by itself (k=1: cut), the env when all have."""

    num_agents = 3
    observation_space = spaces.Box(0, 255, (2,), np.uint8)
    action_space = spaces.Discrete(4, start=10)

    def __init__(self, index):
        self.index = index

    def reset(self, seed=None):
        if seed is not None:
            self.seed = seed
        self.t = 0
        return np.full((3, 2), self.seed % 200, np.uint8), {}

    def step(self, actions):
        self.t += 1
        ends = self.t >= 2 + np.arange(3)
        obs = np.stack([actions[:, 0], np.full(3, self.t)], 1).astype(np.uint8)
        return (
            obs,
            actions[:, 0] / 4,
            ends & (np.arange(3) != 1),
            ends & (np.arange(3) == 1),
            {"t": np.arange(3) + self.t},
        )

    def state_dict(self):
        return {"t": self.t, "seed": self.seed}

    def load_state_dict(self, state):
        self.t, self.seed = state["t"], state["seed"]

    def close(self):
        pass


def crowd_factory():
    return PythonEnvFactory(Crowd, name="crowd", stats=("t",))
