"""Provides very short trainings: their overrides, and a finished run."""

from __future__ import annotations

from pathlib import Path

QUIET = ("hardware=cpu", "trainer.torch_threads=1", "run.dashboard=none", "run.tensorboard=false")
"""Without a screen, and without threads that other tests would wait for."""
COUNTER = (
    *QUIET, "env=counter", "env.num_envs=8", "trainer.batch_size=256", "trainer.bptt_horizon=16",
    "trainer.minibatch_size=256",
)  # fmt: skip
"""The counter environment, with an optimizer step every 256 steps."""


def named(folder: Path, name: str = "r") -> list[str]:
    """The words by which the run's folder is `folder`/`name`."""
    return [f"run.dir={folder}", f"run.name={name}"]


def trained(folder: Path, *words: str) -> Path:
    """The folder of a run that was trained with these words: `folder`/r."""
    from metta_fast.resolve.compose import compose
    from metta_fast.resolve.resolve import resolve
    from metta_fast.run.trainer import Trainer

    assert Trainer(resolve(compose([*QUIET, *named(folder), *words]))).run() == 0
    return folder / "r"
