"""Tests which snapshots are saved, with which score, and what is measured between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from metta_fast.config.keys import RunConfig
from metta_fast.metrics.loggers import read_rows
from metta_fast.run import clocks as clocks_module
from metta_fast.run import snapshot as snapshot_module
from metta_fast.run.callbacks import CallbackError
from metta_fast.run.clocks import Clocks
from metta_fast.run.saver import Saver
from metta_fast.run.snapshot import Score, Snapshot, Speed
from metta_fast.run.trainer import Trainer
from metta_fast.storage import checkpoint
from metta_fast.storage.atomic_file import whole
from tests.run.fake import STEPS, Builder, resolved


class Writer:
    """Keeps what it is given: (step, score); stands for RunWriter and its log."""

    def __init__(self) -> None:
        self.saved: list[tuple[int, Any]] = []
        self.warnings: list[str] = []
        self.log = self

    def save(self, snapshot: Snapshot, score: dict[str, Any] | None) -> Path:
        self.saved.append((snapshot.step, score))
        return Path(f"step_{snapshot.step}")

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def snapshot(epoch: int, weight: float = 1.0) -> Snapshot:
    states = {
        "algorithm": {"policy": {"weight": torch.tensor([1.0, weight]), "count": torch.tensor(3)}},
        "env": None,
    }
    return Snapshot(100 * epoch, epoch, states, 1.0)


def saver(saved: int = -1, **run: Any) -> tuple[Saver, Writer, list[str]]:
    keys = {"checkpoint_interval": 3, "min_interval_s": 0.0, "checkpoint_max_s": 1e9, **run}
    writer, told = Writer(), list[str]()
    return Saver(RunConfig(**keys), writer, saved, lambda path: told.append(path.name)), writer, told  # type: ignore[arg-type]


def test_a_step_is_saved_once_and_told_once() -> None:
    ours, writer, told = saver(saved=100)
    ours.save()  # there is no snapshot yet
    for epoch in (1, 2, 2, 1, 3):
        ours.snapshot = snapshot(epoch)
        ours.save()
        ours.save_last()
    assert writer.saved == [(200, None), (300, None)]
    assert told == ["step_200", "step_300"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_not_saved_and_the_next_ones_are(value: float) -> None:
    ours, writer, _ = saver()
    ours.snapshot = snapshot(1, value)
    ours.save()
    assert writer.saved == []
    assert "not finite" in writer.warnings[0]
    ours.snapshot = snapshot(2)
    ours.save()
    assert writer.saved == [(200, None)]


def test_the_interval_counts_from_the_last_checkpoint_whatever_its_cause() -> None:
    ours, writer, _ = saver()
    for epoch in range(1, 12):
        ours.snapshot = snapshot(epoch)
        if ours.due(epoch) or epoch == 5:  # an evaluation's checkpoint
            ours.save()
    assert [step for step, _ in writer.saved] == [300, 500, 800, 1100]


def test_a_score_is_of_the_rows_since_the_last_checkpoint() -> None:
    ours, writer, _ = saver()
    rows = [
        [{"env/return": 1.0}, {"env/return": 3.0}, {"env/return": float("nan")}, {"loss/policy": 9.0}],
        [],
        [{"env/return": 7.0}, {"eval/return": 4.0}, {"eval/return": 5.0, "env/return": 0.0}],
        [{"env/return": 2.0}],
    ]
    for epoch, given in enumerate(rows, start=1):
        for row in given:
            ours.score.add(row)
        ours.snapshot = snapshot(epoch)
        ours.save()
    assert [score for _, score in writer.saved] == [
        {"name": "env/return", "value": 2.0},
        None,
        {"name": "eval/return", "value": 5.0},
        {"name": "env/return", "value": 2.0},
    ]
    assert Score().value() is None


def test_a_callbacks_error_while_the_run_ends_is_a_warning() -> None:
    def fails(path: Path) -> None:
        raise CallbackError("callback Upload.on_checkpoint raised OSError")

    writer = Writer()
    ours = Saver(RunConfig(), writer, -1, fails)  # type: ignore[arg-type]
    for epoch, call in ((1, ours.save_last), (2, ours.save)):
        ours.snapshot = snapshot(epoch)
        if call == ours.save:
            with pytest.raises(CallbackError):
                call()
        else:
            call()
    assert writer.warnings == ["callback Upload.on_checkpoint raised OSError"]
    assert [step for step, _ in writer.saved] == [100, 200]


class Clock:
    """Stands for the module time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(snapshot_module, "time", clock)
    monkeypatch.setattr(clocks_module, "time", clock)
    return clock


def test_speeds_are_of_the_steps_and_seconds_of_this_session(time: Clock) -> None:
    speed = Speed(5000)
    time.now += 10
    assert list(speed.row(5100).values()) == [10.0, 10.0]
    time.now += 5
    assert list(speed.row(5400).values()) == pytest.approx([60.0, 400 / 15])
    time.now += 65
    speed.leave_out(60)
    assert list(speed.row(5500).values()) == pytest.approx([20.0, 500 / 20])
    time.now += 30
    speed.leave_out(20)
    assert list(speed.row(5600).values()) == pytest.approx([10.0, 600 / 30])


def test_seconds_go_on_over_sessions_and_an_evaluation_is_in_no_phase(time: Clock) -> None:
    clocks = Clocks(
        RunConfig(log_interval=1, monitor_interval=0), epoch=3, steps=300, seconds=77.0, monitor=None
    )
    time.now += 10
    assert clocks.seconds() == pytest.approx(87.0)
    assert clocks.begin_boundary() is not None
    time.now += 3
    clocks.end_boundary()
    row = clocks.row(4, 400)
    assert row["perf/time/boundary"] == pytest.approx(3.0)
    assert row["perf/steps_per_second"] == pytest.approx(100 / 13)
    assert clocks.begin_boundary() is None
    time.now += 40
    clocks.leave_out(38)
    clocks.end_boundary()
    row = clocks.row(5, 500)
    assert row["perf/time/boundary"] == pytest.approx(2.0)
    assert row["perf/steps_per_second"] == pytest.approx(100 / 2)
    assert row["perf/steps_per_second_mean"] == pytest.approx(200 / 15)


@pytest.mark.parametrize("keep", [0, 1, 2, 3, 9])
def test_the_newest_checkpoints_and_the_best_are_kept(tmp_path: Path, keep: int) -> None:
    """At least one, whatever the number says."""
    for step, value in ((100, 1.0), (200, 5.0), (300, 2.0), (400, 3.0)):
        checkpoint.save(tmp_path, step, {}, {"score": {"name": "env/return", "value": value}})
    checkpoint.prune(tmp_path, keep)
    newest = [100, 200, 300, 400][-max(keep, 1) :]
    assert [step for step, _ in checkpoint.steps(tmp_path)] == sorted({200, *newest})


def test_a_rows_seconds_are_those_of_its_checkpoint(tmp_path: Path) -> None:
    """Both are of the boundary's snapshot, so that a resume goes on from the last row's."""
    assert Trainer(resolved(tmp_path, checkpoint_interval=1, keep_checkpoints=99), build=Builder()).run() == 0
    folder = tmp_path / "fake"
    rows = {row["train/steps"]: row["train/seconds"] for row in read_rows(folder / "metrics.jsonl")}
    found = [checkpoint.read(path) for _, path in checkpoint.steps(folder / "checkpoints")]
    assert [one.step for one in found] == [STEPS * epoch for epoch in range(1, 11)]
    assert all(rows[one.step] == one.meta["seconds"] for one in found)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text, error in (("old", None), ("half", OSError("disk full")), ("new", None)):
        before = path.read_text() if path.exists() else None
        try:
            with whole(path) as beside:
                beside.write_text(text)
                assert (path.read_text() if path.exists() else None) == before
                if error is not None:
                    raise error
        except OSError:
            assert path.read_text() == before
        else:
            assert path.read_text() == text
        assert [entry.name for entry in tmp_path.iterdir()] == ["config.yaml"]
