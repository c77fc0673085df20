"""Trains short runs by the defaults: only environment and budget are typed (all tasks: tests/learn/defaults.py)."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.learn.defaults import Score, measure, table
from tests.learn.tasks import TASKS, Task


def task(name: str, steps: int) -> Task:
    found = next(task for task in TASKS if task.name == name)
    return Task(found.name, found.env, steps, found.floor, found.goal, found.policy)


@pytest.mark.parametrize(
    ("name", "steps", "least"),
    [("bandit", 10_000, 0.85), ("target", 10_000, -0.2), ("CartPole-v1", 20_000, 120)],
)
def test_short_runs_learn(tmp_path: Path, name: str, steps: int, least: float) -> None:
    import metta_fast

    found: Any = metta_fast.train(
        env=task(name, steps).env,
        trainer__total_timesteps=steps,
        run__dir=str(tmp_path),
        run__name="run",
        run__dashboard="none",
        vector__backend="serial",
    )
    assert found.steps == pytest.approx(steps, rel=0.05)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "metta_fast",
            "eval",
            str(found.folder),
            "--episodes",
            "50",
            "--deterministic",
            "--json",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    players = json.loads(done.stdout)["players"]
    assert players["policy"]["return"] > least
    assert players["policy"]["return"] > players["random"]["return"]


def test_table_shows_medians_and_what_is_missing() -> None:
    tasks = [task("bandit", 100), task("copy", 100)]
    scores = [Score("bandit", "metta_fast", seed, seed / 10, 3.0) for seed in range(3)]
    assert "| bandit | 100 | 0.93 | 0.98 | 0.1 (0 … 0.2; 3 seeds) | — | 3, — |" in table(tasks, scores)
    assert "| copy | 100 | 0.85 | 0.97 | — | — | —, — |" in table(tasks, scores)


@pytest.mark.slow
@pytest.mark.parametrize("name", [task.name for task in TASKS])
def test_floor(name: str) -> None:
    import os
    import time

    found = next(task for task in TASKS if task.name == name)
    score = measure(found, "metta_fast", 0, sorted(os.sched_getaffinity(0))[:2], time.monotonic() + 3600)
    assert found.floor is None or score.score >= found.floor
