"""Tests which time limit a Python environment states."""

from __future__ import annotations

from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit

from metta_fast.envs.episode_length import episode_length
from metta_fast.envs.python_env import PythonEnvFactory
from tests.strangers import Cheap, Team


class Broken(Cheap):
    @property
    def max_steps(self) -> int:
        raise RuntimeError("not yet")


def with_limit(limit: Any) -> Cheap:
    env = Cheap()
    env.max_steps = limit
    return env


@pytest.mark.parametrize(
    ("env", "length"),
    [
        (lambda: gymnasium.make("CartPole-v1"), 500),
        (lambda: gymnasium.make("CartPole-v1", max_episode_steps=90), 90),
        (lambda: TimeLimit(Cheap(), 12), 12),  # no spec
        (lambda: TimeLimit(gymnasium.make("CartPole-v1"), 12), 12),
        (lambda: TimeLimit(with_limit(5), 12), 5),
        (lambda: with_limit(1), 1),  # a task of one step
        (Team, 8),
        (Cheap, 0),
        (Broken, 0),
        (lambda: with_limit(None), 0),
        (lambda: with_limit(float("inf")), 0),
        (lambda: with_limit(True), 0),
        (lambda: with_limit(-1), 0),
    ],
)
def test_the_smallest_limit_counts(env: Any, length: int) -> None:
    made = env()
    assert episode_length(made) == length
    assert PythonEnvFactory(lambda index: env()).spec.max_steps == length
