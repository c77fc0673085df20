"""Checks `metta_fast.evaluate`, the function form of `metta-fast eval`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import metta_fast
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
