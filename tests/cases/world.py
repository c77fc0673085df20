"""Provides a Python environment with a state of any size."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np

from metta_fast.envs.python_env import PythonEnvFactory


class World:
    """Counts its steps in the first entries of `s`, uint8 [size]; never ends."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size: int = 3) -> None:
        self.s = np.zeros(size, np.uint8)

    def reset(self, seed=None, options=None):
        self.s[:] = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.s[:3] += 1
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self):
        pass

    def state_dict(self):
        return {"s": self.s}

    def load_state_dict(self, state):
        self.s = state["s"].copy()


def make(index: int, *, size: int, kind: type[World]) -> World:
    return kind(size)


def worlds(size: int = 3, kind: type[World] = World) -> PythonEnvFactory:
    """Returns the factory of environments of `kind`."""
    return PythonEnvFactory(partial(make, size=size, kind=kind))
