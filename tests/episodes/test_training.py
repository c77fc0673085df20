"""Tests replays during training: written when due and at the end, without any effect on the training."""

import json
import os
import re

import pytest
import torch

from metta_fast.contracts.recording import Recording
from metta_fast.metrics.loggers import read_rows
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.tiny import trained

SIZES = [
    "env=grid", "env.num_envs=8", "env.max_steps=40", "policy=lstm", "policy.hidden_size=16",
    "trainer.batch_size=1024", "trainer.minibatch_size=512", "trainer.total_timesteps=7168",
    "trainer.deterministic=true", "run.min_interval_s=0",
]  # fmt: skip


def train(folder, *words):
    return RunDir(trained(folder, *SIZES, *words))


def pages(run):
    return sorted(run.replays.iterdir()) if run.replays.is_dir() else []


def weights(run):
    return checkpoint.latest(run.checkpoints, pytest.fail).load("algorithm")["policy"]


def read(path):
    found = re.search(r'id="recording">(.*?)</script>', path.read_text(), re.DOTALL)
    return Recording.from_json(json.loads(found[1]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def with_replays(folder):
    return train(folder / "with", "run.replay_interval=3")


def test_a_run_with_replays_learns_the_same(folder, with_replays):
    without = train(folder / "without")
    assert pages(without) == []
    one, two = weights(with_replays), weights(without)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    keys = ("loss/policy", "loss/value", "env/return")
    figures = [
        [[row.get(key) for key in keys] for row in read_rows(run.metrics)] for run in (with_replays, without)
    ]
    assert figures[0] == figures[1]


def test_they_come_when_due_and_at_the_end(with_replays):
    steps = {row["train/epoch"]: row["train/steps"] for row in read_rows(with_replays.metrics)}
    due = [steps[epoch] for epoch in (3, 6, max(steps))]
    assert max(steps) % 3
    assert [path.name for path in pages(with_replays)] == [f"step_{count:012d}.html" for count in due]
    assert with_replays.log.read_text().count("replay ") == 3


def test_the_page_is_that_of_the_command(with_replays, tmp_path):
    from metta_fast.episodes.command import run_replay_command

    path = tmp_path / "now.json"
    assert run_replay_command([str(with_replays.path), "--json", str(path)]) == 0
    assert Recording.load(path).to_json() == read(pages(with_replays)[-1]).to_json()


def test_the_newest_are_kept_and_others_left_alone(folder, tmp_path):
    from metta_fast.episodes.training import _prune

    names = [f"step_{i:012d}.html" for i in range(5)]
    for age, name in enumerate([*names, "step_000000000001-seed0-episode0.html"]):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    _prune(tmp_path, 2)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*names[:2], "step_000000000001-seed0-episode0.html"}


def test_a_replay_that_fails_is_told_and_training_goes_on(folder, monkeypatch):
    import errno

    from metta_fast.episodes import training

    def full(recording, path):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(training, "write_page", full)
    run = train(folder / "full", "run.replay_interval=3")
    assert run.log.read_text().count("No space left on device") == 3
    assert weights(run)


def test_an_environment_that_cannot_be_rendered_is_told(monkeypatch):
    from metta_fast.contracts.errors import UserError
    from metta_fast.envs.frame_recorder import FrameRecorder

    def render():
        raise ImportError("pygame is not installed")

    with pytest.raises(UserError, match="cannot be rendered: ImportError: pygame"):
        FrameRecorder(render).see()
