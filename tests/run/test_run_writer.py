"""Only rank 0 writes; the other ranks of a run share its folder and do the same otherwise."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

from metta_fast.metrics.loggers import read_rows
from metta_fast.run.trainer import Trainer
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.fake import Builder, resolved


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_only_rank_0_writes(tmp_path, capfd):
    writer, other = Builder(), Builder()
    assert Trainer(resolved(tmp_path, tensorboard=True, dashboard="plain"), build=writer).run() == 0
    written = files(tmp_path / "fake")
    assert {"metrics.jsonl", "train.log", "config.yaml", "checkpoints"} <= set(written)
    assert len([name for name in written if name.startswith("events.out.tfevents.")]) == 1
    assert "trained to 1000 steps" in capfd.readouterr().err
    shared = tmp_path / "shared"
    shared.mkdir()
    run = {"tensorboard": True, "dashboard": "plain", "replay_interval": 1}
    silent = Trainer(resolved(tmp_path, **run), folder=RunDir(shared), build=other, rank=1)
    assert silent.run() == 0
    assert files(shared) == []
    assert capfd.readouterr() == ("", "")
    assert torch.equal(writer.algorithm.weight, other.algorithm.weight)
    assert other.algorithm.steps == 1000


@pytest.mark.parametrize("rank", [0, 1])
def test_a_request_ends_a_run_as_a_signal_does(tmp_path, rank):
    """From another thread, in the middle of an epoch: the last snapshot is saved."""

    builder = Builder(seconds=0.25)
    folder = RunDir(tmp_path / "fake")
    folder.path.mkdir()
    trainer = Trainer(resolved(tmp_path, checkpoint_interval=1000), folder=folder, build=builder, rank=rank)

    def ask() -> None:
        while getattr(getattr(builder, "algorithm", None), "steps", 0) < 300:
            time.sleep(0.01)
        time.sleep(0.1)
        trainer.interrupt.request("a notice that this machine ends", 75)

    threading.Thread(target=ask, daemon=True).start()
    assert trainer.run() == 75
    assert trainer.interrupted
    assert builder.algorithm.steps == 300
    assert builder.vec.closed == 1
    if rank:
        assert files(folder.path) == []
        return
    assert [step for step, _ in checkpoint.steps(folder.checkpoints)] == [300]
    said = folder.log.read_text()
    assert (
        "stopped: a notice that this machine ends. The state is saved at step 300; continue with resume="
        in said
    )


def test_an_old_checkpoint_that_cannot_be_removed_is_reported_once(tmp_path, monkeypatch):
    """Not at each later checkpoint; the others are removed."""
    real = Path.rename

    def rename(self, target):
        if self.name == "step_000000000200":
            raise PermissionError(1, "Operation not permitted", str(self))
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    run = resolved(tmp_path, checkpoint_interval=1, keep_checkpoints=1)
    assert Trainer(run, build=Builder()).run() == 0
    folder = RunDir(tmp_path / "fake")
    assert [step for step, _ in checkpoint.steps(folder.checkpoints)] == [200, 1000]
    said = folder.log.read_text()
    assert said.count("an old checkpoint cannot be removed") == 1
    assert "step_000000000200 cannot be removed: Operation not permitted" in said


def test_a_resume_says_where_later_rows_and_checkpoints_are(tmp_path):
    assert Trainer(resolved(tmp_path), build=Builder()).run() == 0
    folder = RunDir(tmp_path / "fake")
    start = checkpoint.read(checkpoint.steps(folder.checkpoints)[0][1])
    assert start.step == 400
    assert Trainer(resolved(tmp_path), folder=folder, start=start, build=Builder()).run() == 0
    (aside,) = folder.path.glob("metrics-aside-*.jsonl")
    assert [row["train/steps"] for row in read_rows(aside)] == [*range(500, 1001, 100)]
    assert [row["train/steps"] for row in read_rows(folder.metrics)] == [*range(100, 1001, 100)]
    said = folder.log.read_text()
    assert f"rows of metrics after step 400 were put aside: {aside}" in said
    assert said.count("a checkpoint after step 400 was put aside") == 2
