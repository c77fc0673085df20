"""Defines the environments of `--vector`, the same for every library.

    env = TASKS["sleep"].make()            # a gymnasium.Env

CartPole-v1 is Gymnasium's own, as gymnasium.make gives it. The others cost what their name says and nothing else: they
end after LENGTH steps (a time limit) and reset at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 200
"""Steps of an episode, except CartPole's."""
SLEEP_S = 10e-3
BUSY_S = 1e-3
"""Seconds of processor time: as long as that takes on the clock, so that more processes than cores gain nothing."""
IMAGE = (84, 84, 4)
CHOICES = 2
"""Actions of every environment: Discrete(2)."""


class Fixed(gymnasium.Env):
    """Costs next to nothing: four float32, a reward of 1, a time limit."""

    observation_space: spaces.Space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(CHOICES)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.length = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.work()
        self.length += 1
        return self.observe(), 1.0, False, self.length >= LENGTH, {}

    def work(self) -> None:
        """Takes the time of a step."""

    def observe(self) -> np.ndarray:
        return np.zeros(4, np.float32)


class Sleeping(Fixed):
    """Waits in each step, as for a simulator on another machine."""

    def work(self) -> None:
        time.sleep(SLEEP_S)


class Busy(Fixed):
    """Computes in each step, in Python."""

    def work(self) -> None:
        end = time.thread_time() + BUSY_S
        while time.thread_time() < end:
            pass


class Images(Fixed):
    """Gives a new image in each step."""

    observation_space = spaces.Box(0, 255, IMAGE, np.uint8)

    def observe(self) -> np.ndarray:
        return np.full(IMAGE, self.length, np.uint8)


def cart_pole() -> Any:
    """Makes Gymnasium's CartPole-v1."""
    return gymnasium.make("CartPole-v1")


@dataclass(frozen=True)
class Task:
    """One environment."""

    name: str
    """As `--vector-env` takes it."""
    title: str
    make: Callable[[], Any] | None = None
    """Makes one in Python; None: it is in C, and has no rivals but EnvPool."""


TASKS = {
    task.name: task
    for task in (
        Task("cartpole", "CartPole-v1", cart_pole),
        Task("sleep", "sleeping 10 ms a step", Sleeping),
        Task("busy", "computing 1 ms a step", Busy),
        Task("image", "images of 84 × 84 × 4 bytes", Images),
        Task("cartpole_c", "CartPole in C"),
    )
}
