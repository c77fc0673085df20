"""Provides a tiny algorithm for the trainer's tests; its weight shows whether a resume is exact."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metta_fast.config.keys import Config
from metta_fast.contracts.algorithm import Choice
from metta_fast.contracts.env import ActionSpec, EnvFactory, EnvSpec, Leaf
from metta_fast.resolve.resolve import Resolved
from metta_fast.run.build import Parts

SPEC = EnvSpec(
    "fake", 1, {"obs": Leaf((1,), "float32")}, ActionSpec("discrete", (2,), (0,)), cheap_state=True
)
STEPS = 100
"""Agent steps of an epoch."""


class FakeVec:
    """One number that counts steps."""

    def __init__(self) -> None:
        self.count = 0
        self.closed = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": np.array([self.count], np.uint64)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = int(state["count"][0])

    def close(self) -> None:
        self.closed += 1


class FakeAlgorithm:
    """The weight does a random walk; `fail` maps an epoch to what is raised within it."""

    def __init__(
        self, vec: FakeVec, *, fail: dict[int, BaseException] | None = None, seconds: float = 0.0
    ) -> None:
        self.vec, self.fail, self.seconds = vec, fail or {}, seconds
        self.steps = self.epoch = 0
        self.notes: list[str] = []
        self.fast_paths = [
            Choice("rollout in C", "the plain one", None),
            Choice("update in C", "the plain one", "an LSTM", costs_speed=True),
        ]
        self.weight = torch.zeros(2)
        self.random = torch.Generator().manual_seed(1)

    def collect(self) -> None:
        self.vec.count += STEPS
        time.sleep(self.seconds)
        if self.epoch in self.fail:
            raise self.fail[self.epoch]

    def update(self) -> None:
        self.weight += torch.randn(2, generator=self.random) + self.vec.count
        self.steps += STEPS
        self.epoch += 1

    def metrics(self) -> dict[str, float]:
        return {
            "env/return": self.steps / 1000,
            "loss/policy": float(self.weight[0]),
            "train/steps": self.steps,
            "train/epoch": self.epoch,
            "perf/time/env": 0.1,
            "perf/time/update": 0.3,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "policy": {"weight": self.weight.clone()},
            "steps": self.steps,
            "epoch": self.epoch,
            "random": self.random.get_state(),
        }

    def env_state(self) -> dict[str, Any]:
        return self.vec.state_dict()

    def use(self, vec: FakeVec) -> None:
        self.vec = vec

    def start_from(self, state: dict[str, Any], source: str) -> None:
        self.weight = state["policy"]["weight"].clone()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weight = state["policy"]["weight"].clone()
        self.steps, self.epoch = state["steps"], state["epoch"]
        self.random.set_state(state["random"])


def resolved(folder: Path, **run: Any) -> Resolved:
    config = Config()
    config.trainer.total_timesteps = 10 * STEPS
    config.trainer.device = "cpu"
    config.run.dir, config.run.dashboard, config.run.tensorboard = str(folder), "none", False
    config.run.name, config.run.checkpoint_interval, config.run.min_interval_s = "fake", 4, 0.0
    for name, value in run.items():
        setattr(config.run, name, value)
    return Resolved(config, {})


class Builder:
    """Stands for assembly.build_parts; keeps the parts for the test to look at."""

    def __init__(self, **algorithm: Any) -> None:
        self.arguments = algorithm
        self.vec = FakeVec()
        self.algorithm: FakeAlgorithm | None = None

    def __call__(self, config: Config, factory: EnvFactory) -> Parts:
        self.algorithm = FakeAlgorithm(self.vec, **self.arguments)
        return Parts(SPEC, self.vec, None, self.algorithm, torch.device("cpu"))  # type: ignore[arg-type]
