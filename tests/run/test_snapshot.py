"""Tests a run's snapshots: copies that can be saved, each saved once."""

from __future__ import annotations

import enum
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from metta_fast.contracts.errors import NonFiniteError, UserError
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.build import Parts, build_parts
from metta_fast.run.trainer import Trainer
from metta_fast.storage import checkpoint
from metta_fast.storage.encoding import encode
from metta_fast.storage.run_folder import RunDir
from tests.run.fake import Builder, resolved
from tests.run.test_checkpoint_folders import put
from tests.run.test_end_to_end import words


class Phase(enum.IntEnum):
    WALK = 1


class Env(Builder):
    """Builds parts whose environments' state has `late` from an epoch on."""

    def __init__(self, value: Any, epoch: int, **algorithm: Any) -> None:
        super().__init__(**algorithm)
        real, self.vec.state_dict = self.vec.state_dict, self.states  # type: ignore[method-assign]
        self.real, self.value, self.epoch = real, value, epoch

    def states(self) -> dict[str, Any]:
        assert self.algorithm is not None
        return self.real() | {"late": self.value if self.algorithm.epoch >= self.epoch else None}


def checkpoints(folder: Path) -> list[checkpoint.Checkpoint]:
    return [checkpoint.read(path) for _, path in checkpoint.steps(folder / "fake" / "checkpoints")]


def test_a_state_that_cannot_be_saved_ends_the_run_at_its_first_snapshot(tmp_path):
    builder = Env(Phase.WALK, 1)
    with pytest.raises(
        UserError, match=r"env\.late: a value of type Phase .* from the state_dict of"
    ) as caught:
        Trainer(resolved(tmp_path, checkpoint_interval=1000), build=builder).run()
    assert builder.algorithm.epoch == 1
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("fail", [{}, {7: NonFiniteError("loss is NaN")}])
def test_one_that_becomes_so_later_costs_no_training(tmp_path, fail, capfd):
    """The checkpoint is written without the environments' state, whatever ends the run."""
    builder = Env(Phase.WALK, 6, fail=fail)
    assert Trainer(resolved(tmp_path), build=builder).run() == bool(fail)
    saved = {found.step: found.load("env") for found in checkpoints(tmp_path)}
    last = 700 if fail else 1000
    assert [step for step, env in saved.items() if env is not None] == [400]
    assert max(saved) == last
    said = (tmp_path / "fake" / "train.log").read_text()
    assert f"checkpoint of step {last}: the state of the environments is left out" in said
    assert "env.late: a value of type Phase" in said


def test_an_algorithms_state_that_cannot_be_saved_later_is_told(tmp_path):
    class Odd(Builder):
        def __call__(self, *arguments: Any) -> Parts:
            parts = super().__call__(*arguments)
            real = self.algorithm.state_dict
            self.algorithm.state_dict = lambda: real() | ({"odd": {1}} if self.algorithm.epoch > 5 else {})
            return parts

    with pytest.raises(UserError, match=r"algorithm\.odd: a value of type set"):
        Trainer(resolved(tmp_path), build=Odd()).run()


@pytest.mark.parametrize("since", [0, 1])
def test_an_algorithm_that_gives_its_own_tensors_is_refused(tmp_path, since):
    """since: the epoch from which on the state has the tensor, as an optimizer's has."""

    class Live(Builder):
        def __call__(self, *arguments: Any) -> Parts:
            parts = super().__call__(*arguments)
            real, own = self.algorithm.state_dict, self.algorithm.weight
            self.algorithm.state_dict = lambda: (
                real() | ({"moments": {0: own}} if self.algorithm.epoch >= since else {})
            )
            return parts

    builder = Live()
    with pytest.raises(UserError, match=r"own memory at algorithm\['moments'\]\[0\]"):
        Trainer(resolved(tmp_path), build=builder).run()
    assert builder.algorithm.epoch == since + 1


def test_with_an_interval_of_one_each_step_is_saved_once_with_its_score(tmp_path, monkeypatch):
    real, saved = checkpoint.save, []

    def save(folder: Path, step: int, states: Any, meta: Any) -> Path:
        saved.append((step, meta["score"]))
        return real(folder, step, states, meta)

    monkeypatch.setattr(checkpoint, "save", save)
    assert Trainer(resolved(tmp_path, checkpoint_interval=1, keep_checkpoints=99), build=Builder()).run() == 0
    steps = range(100, 1001, 100)
    assert saved == [(step, {"name": "env/return", "value": step / 1000}) for step in steps]
    assert [found.step for found in checkpoints(tmp_path)] == [*steps]


def test_resume_auto_takes_the_one_before_one_that_cannot_be_loaded(tmp_path, capfd):
    from metta_fast.cli import main

    more = ["trainer.total_timesteps=4000", "vector.backend=serial", "run.checkpoint_interval=1",
            "run.min_interval_s=0", "trainer.deterministic=true"]  # fmt: skip
    assert main(words(tmp_path, *more)) == 0
    folder = RunDir(tmp_path / "r").checkpoints
    (*_, (before, _), (last, newest)) = checkpoint.steps(folder)
    put(newest, "env.pt", {"envs": RunDir(tmp_path)})
    capfd.readouterr()
    assert main(words(tmp_path, *more, "resume=auto")) == 0
    said = capfd.readouterr().err
    assert f"continuing from step {before}" in said
    assert "it refers to metta_fast.storage.run_folder.RunDir" in said
    assert checkpoint.latest(folder, pytest.fail, ["algorithm", "env"]).step == last
    assert len(list(tmp_path.glob("r/metrics-aside-*.jsonl"))) == 1


@pytest.fixture
def parts() -> Iterator[Callable[..., Parts]]:
    """Builds a run's parts from words, and closes them afterwards."""
    made: list[Parts] = []

    def make(*keys: str) -> Parts:
        found = resolve(compose([*keys, "trainer.device=cpu"]))
        made.append(build_parts(found.config, found.factory))
        return made[-1]

    yield make
    for one in made:
        one.close()


SMALL = ["env.num_envs=8", "trainer.deterministic=true", "vector.backend=threads", "policy.hidden_size=16"]
PPO = [
    "trainer.batch_size=256",
    "trainer.minibatch_size=128",
    "trainer.bptt_horizon=8",
    "trainer.compile=false",
]
RUNS = {
    "in C": ["env=counter", *PPO],
    "grid in C": ["env=grid", *PPO],
    "robots": ["env=inverted_pendulum", *PPO],
    "torch": ["env=counter", "policy.core=lstm", *PPO],
    "torch, adaptive": ["env=counter", "policy.core=mingru", "trainer.schedule=adaptive", *PPO],
    "normalizers": [
        "env=inverted_pendulum",
        "policy.normalize_obs=true",
        "trainer.normalize_reward=true",
        *PPO,
    ],
    "features": [
        "env=counter",
        "features=[prioritized_replay,weight_analysis]",
        "run.gradient_stats_interval=1",
        *PPO,
    ],
    "another algorithm": ["env=counter", "algorithm=tests.toy_algorithm:Toy"],
}


@pytest.mark.parametrize("name", RUNS)
def test_training_on_changes_no_snapshot(parts, name):
    """The bytes of a snapshot of the algorithm and the environments are the same after two more epochs."""
    algorithm = parts(*RUNS[name], *SMALL).algorithm

    def epoch() -> None:
        algorithm.collect()
        algorithm.update()

    def taken() -> tuple[Any, Any]:
        return algorithm.state_dict(), algorithm.env_state()

    def stored(snapshot: tuple[Any, Any]) -> bytes:
        stream = io.BytesIO()
        torch.save(encode({"algorithm": snapshot[0], "env": snapshot[1]()}), stream)
        return stream.getvalue()

    epoch()
    epoch()
    snapshot = taken()
    before = stored(snapshot)
    epoch()
    epoch()
    assert stored(snapshot) == before
    assert stored(taken()) != before
