"""Trains one small batched environment of each kind to its known best, by the command that a user types."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metta_fast import evaluate
from metta_fast.cli import main

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
    """Returns the mean return of an evaluation, which makes environments of its own."""
    return evaluate(folder / "r", episodes=8, trust=True)["return"]


def test_gymnasium(tmp_path: Path) -> None:
    returns = trained("envs:sync", tmp_path, "env.params.mode=SameStep")
    assert returns[0] < 5
    assert returns[-1] > 7.5  # of 8


def test_a_function_of_the_number(tmp_path: Path) -> None:
    """Its environments can be made again, so that the policy is evaluated."""
    assert trained("envs:function", tmp_path)[-1] > 7.5
    assert evaluated(tmp_path) > 7.5


@pytest.mark.parametrize("kind", ["rsl_rl", "isaac", "mani_skill"])
def test_tensors(kind: str, tmp_path: Path) -> None:
    returns = trained(f"envs:{kind}", tmp_path)
    assert returns[-1] > 7


def test_jax(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    returns = trained("jax_envs:name", tmp_path)
    assert returns[-1] > 7.5
    assert evaluated(tmp_path) > 7.5
