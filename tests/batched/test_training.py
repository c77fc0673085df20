"""Trains one small batched environment of each kind to its known best, by the command that a user types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metta_fast import evaluate
from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.envs.batched.factory import BatchedEnvFactory
from tests.batched.envs import Tally, vector

COMMON = (
    "env.num_envs=16", "trainer.total_timesteps=16_000", "trainer.device=cpu", "trainer.torch_threads=1",
    "run.dashboard=none", "run.tensorboard=false", "run.name=r",
)  # fmt: skip


def trained(env: str, folder: Path, *words: str) -> list[float]:
    """Returns env/return of every epoch that has one."""
    assert main(["train", f"env=tests.batched.{env}", *COMMON, *words, f"run.dir={folder}"]) == 0
    rows = [json.loads(line) for line in (folder / "r" / "metrics.jsonl").read_text().splitlines()]
    return [row["env/return"] for row in rows if "env/return" in row]


def evaluated(folder: Path) -> float:
    """Returns the mean return of an evaluation, which has environments of its own."""
    return evaluate(folder / "r", episodes=8, trust=True)["return"]


def test_gymnasium(tmp_path: Path) -> None:
    returns = trained("envs:sync", tmp_path, "env.params.mode=SameStep")
    assert returns[0] < 5
    assert returns[-1] > 7.5  # of 8
    assert evaluated(tmp_path) > 7.5  # asked for 8 environments, the function makes 8


@pytest.mark.parametrize("env", ["envs:sync", "envs:function", "envs:mani_skill", "jax_envs:name"])
def test_export_and_replay(env: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both play environments of their own: the export compares the file with the policy on their rows."""
    if env.startswith("jax"):
        pytest.importorskip("jax")
    words = ["env.params.mode=SameStep"] if env == "envs:sync" else []
    trained(env, tmp_path, "trainer.total_timesteps=512", *words)
    run, file = str(tmp_path / "r"), str(tmp_path / "p.pt2")
    assert main(["export", run, "--out", file, "--trust"]) == 0
    assert "equal to the policy on" in capsys.readouterr().out
    if not env.startswith("jax"):  # it compiles for seconds
        assert main(["replay", run, "--trust"]) == 0
        assert "8 steps, 1 agent" in capsys.readouterr().out


def test_evaluated_while_training(tmp_path: Path) -> None:
    """A function that makes config.num_envs environments is called once more for the evaluation's."""
    words = ("run.evaluate_interval=2", "run.evaluate_episodes=5", "trainer.total_timesteps=1024")
    trained("envs:sync", tmp_path, *words)
    rows = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert sum("eval/return" in row for row in rows) == 1


def test_an_object_that_cannot_be_made_again() -> None:
    """It can be evaluated as it is, once, while no vector has it."""
    env = vector(Tally, 3, "SameStep")
    factory = BatchedEnvFactory(env)
    assert factory.make_batch(0, 3, 3).size == 3
    with pytest.raises(UserError, match="an evaluation of 3 environments needs some of its own"):
        factory.make_batch(0, 3, 3)
    with pytest.raises(UserError, match="gives the same object again; make a new one each time"):
        BatchedEnvFactory(env, again=lambda num_envs: env).make_batch(0, 2, 2)
    fixed = BatchedEnvFactory(env, again=lambda num_envs: vector(Tally, 3, "SameStep"))
    with pytest.raises(UserError, match=r"config\.num_envs=5 and made 3; .* run\.evaluate_episodes=3"):
        fixed.check_apart(5)
    fixed.check_apart(3)


def test_a_function_of_the_number(tmp_path: Path) -> None:
    """Its environments can be made again, so that the policy is evaluated."""
    assert trained("envs:function", tmp_path)[-1] > 7.5
    assert evaluated(tmp_path) > 7.5


@pytest.mark.parametrize("kind", ["rsl_rl", "isaac", "mani_skill"])
def test_tensors(kind: str, tmp_path: Path) -> None:
    returns = trained(f"envs:{kind}", tmp_path)
    assert returns[-1] > 7
    if kind == "rsl_rl":
        with pytest.raises(UserError, match="RSL-RL's interface has no reset"):
            evaluated(tmp_path)
    else:
        assert evaluated(tmp_path) > 7


def test_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    returns = trained("jax_envs:name", tmp_path)
    assert returns[-1] > 7.5
    assert evaluated(tmp_path) > 7.5
