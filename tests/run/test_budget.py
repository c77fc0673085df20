"""Training ends at exactly trainer.total_timesteps, and says before the start where a rollout is much of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metta_fast.cli import main
from metta_fast.run.train_function import TrainResult, train

STEP_COST = {"cheap": "cheap", "team": "slow"}


def trained(folder: Path, env: str, total: int, **keys: Any) -> TrainResult:
    quiet = {"run__dir": str(folder), "run__dashboard": "none", "run__tensorboard": False}
    return train(env, trainer__total_timesteps=total, **quiet, **keys)


def rows(result: TrainResult) -> list[dict[str, Any]]:
    lines = (result.folder / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "train/steps" in row]


@pytest.mark.parametrize(
    ("env", "total"),
    [("cheap", 1), ("cheap", 5), ("cheap", 999), ("cheap", 20_000), ("team", 5), ("team", 999)],
)
def test_an_environment_of_ones_own_is_trained_for_the_budget(tmp_path: Path, env: str, total: int) -> None:
    keys = {"env__step_cost": STEP_COST[env], "vector__backend": "serial"}
    result = trained(tmp_path, f"tests.strangers:{env}", total, **keys)
    assert (result.steps, result.metrics["train/steps"]) == (total, total)
    seen = rows(result)
    assert seen[-1]["train/steps"] == total
    if len(seen) > 1:
        assert seen[-1]["train/learning_rate"] == 0 < seen[0]["train/learning_rate"]
    if total == 20_000:
        assert len(seen) > 30  # many updates from a short budget
        assert seen[-1]["env/return"] > 14  # of 16: it has learned; a random policy has 8


@pytest.mark.parametrize("words", [{"hardware": "cpu"}, {"hardware": "cpu", "policy": "mingru"}])
def test_our_own_environments_end_at_the_budget_too(tmp_path: Path, words: dict[str, str]) -> None:
    sizes = {"env__num_envs": 8, "trainer__batch_size": 1024, "trainer__torch_threads": 1}
    result = trained(tmp_path, "grid_solo", 5_001, **sizes, **words)
    assert result.steps == 5_001


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["env=counter", "hardware=cpu", "trainer.total_timesteps=1000"],
            "trainer.total_timesteps=1000 is less than one rollout of trainer.batch_size=32768 (hardware/cpu)",
        ),
        (
            ["env=counter", "env.num_envs=8", "trainer.batch_size=512", "trainer.total_timesteps=2100"],
            "trainer.total_timesteps=2100 is about 5 rollouts of trainer.batch_size=512 (command line); the last one "
            "ends early, so that 2100 steps are trained",
        ),
    ],
)
def test_a_line_at_the_start_says_what_will_be_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    where = [f"run.dir={tmp_path}", "run.dashboard=plain", "run.tensorboard=false", "vector.backend=serial"]
    assert main(["train", *words, *where]) == 0
    out = capsys.readouterr()
    total = words[-1].partition("=")[2]
    assert line in " ".join((out.out + out.err).split())
    assert f"trained to {total} steps" in out.out + out.err
