"""Lists the tasks that the defaults for an environment of one's own must learn, with their floors and goals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SANITY = "metta_fast.envs.sanity"


@dataclass(frozen=True)
class Task:
    """One row of the table in docs/learning.md."""

    name: str
    env: str
    """What a user types after env=."""
    steps: int
    """trainer.total_timesteps."""
    floor: float | None
    """The median of five seeds must reach it; None: Stable-Baselines3's score."""
    goal: float
    policy: str | None = None
    """What a user types after policy=."""


def gym(name: str) -> Callable[[Any], Callable[[int], Any]]:
    """Returns what a user writes to train this Gymnasium environment."""

    def make(config: Any) -> Callable[[int], Any]:
        def environment(index: int) -> Any:
            import gymnasium

            return gymnasium.make(name)

        return environment

    return make


cartpole = gym("CartPole-v1")
acrobot = gym("Acrobot-v1")
pendulum = gym("Pendulum-v1")
mountain_car = gym("MountainCarContinuous-v0")
lunar_lander = gym("LunarLander-v3")
bipedal_walker = gym("BipedalWalker-v3")

TASKS = (
    Task("CartPole-v1", f"{__name__}:cartpole", 50_000, 450, 490),
    Task("Acrobot-v1", f"{__name__}:acrobot", 100_000, -100, -85),
    Task("Pendulum-v1", f"{__name__}:pendulum", 200_000, -300, -180),
    Task("MountainCarContinuous-v0", f"{__name__}:mountain_car", 200_000, None, 90),
    Task("LunarLander-v3", f"{__name__}:lunar_lander", 1_000_000, 200, 250),
    Task("BipedalWalker-v3", f"{__name__}:bipedal_walker", 2_000_000, 230, 270),
    Task("bandit", f"{SANITY}.bandit:make", 50_000, 0.93, 0.98),
    Task("target", f"{SANITY}.target:make", 50_000, -0.15, -0.05),
    Task("copy", f"{SANITY}.copy:make", 200_000, 0.85, 0.97),
    Task("cue, lstm", f"{SANITY}.cue:make", 300_000, 0.9, 0.99, "lstm"),
    Task("cue, mingru", f"{SANITY}.cue:make", 300_000, 0.9, 0.99, "mingru"),
)
