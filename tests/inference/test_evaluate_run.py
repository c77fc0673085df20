"""Checks `metta_fast.evaluate`, the function form of `metta-fast eval`."""

import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import metta_fast
from metta_fast.config.keys import PolicyConfig
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.inference.players import PolicyPlayer
from metta_fast.policy import make_policy
from tests.tiny import COUNTER


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    words = [
        *COUNTER,
        "vector.backend=serial",
        "trainer.total_timesteps=1000",
        f"run.dir={folder}",
        "run.name=a",
    ]
    subprocess.run([sys.executable, "-m", "metta_fast", "train", *words], check=True, capture_output=True)
    return folder / "a"


def test_equals_the_command(run: Path) -> None:
    given = ["--episodes", "8", "--seed", "5", "--deterministic", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "metta_fast", "eval", str(run), *given],
        check=True,
        capture_output=True,
        text=True,
    )
    played = json.loads(done.stdout)["players"]["policy"]
    found = metta_fast.evaluate(run, episodes=8, seed=5, deterministic=True)
    assert found["return"] == pytest.approx(played["return"])
    assert found["length"] == played["length"]
    assert found["return_error"] == pytest.approx(played["score_error"])


@pytest.mark.parametrize(("key", "value"), [("episodes", 0), ("seed", -1)])
def test_refuses_what_cannot_be(run: Path, key: str, value: int) -> None:
    with pytest.raises(metta_fast.UserError, match=f"{key}={value}: expected"):
        metta_fast.evaluate(run, **{key: value})


@pytest.mark.parametrize(("asked", "likely"), [(None, True), (True, True), (False, False)])
def test_continuous_actions_are_the_most_likely_by_default(asked, likely):
    """Of discrete ones a sample is taken (tests/run/test_solved.py)."""
    spec = PythonEnvFactory(lambda index: gymnasium.make("Pendulum-v1")).spec
    policy = make_policy(PolicyConfig(hidden_size=8), spec)
    players = [
        PolicyPlayer(policy, spec, torch.device("cpu"), deterministic=asked, seed=seed) for seed in (1, 2)
    ]
    obs, reset = {"obs": np.ones((4, 3), np.float32)}, np.ones(4, bool)
    first, second = (player.choose(obs, reset) for player in players)
    assert (first == second).all() == likely
    assert players[0].deterministic is likely
