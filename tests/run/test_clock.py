"""Tests a clock that is set during a run: no speed, interval or order of checkpoints depends on it."""

import itertools
import os
import subprocess
import sys
import time

import pytest

from metta_fast.machine.process_clock import process_age, process_start
from metta_fast.metrics.loggers import read_rows
from metta_fast.run.trainer import Trainer
from metta_fast.runtime.interval import Interval
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir, create
from tests.run.fake import STEPS, Builder, resolved

YEAR = 365 * 86400.0


@pytest.fixture(params=["forwards", "backwards", "both"])
def jumps(monkeypatch, request):
    """time.time() gives another year at every call, and so do the functions that read it."""
    sign = {"forwards": itertools.repeat(1), "backwards": itertools.repeat(-1)}.get(
        request.param, itertools.cycle((1, -1))
    )
    offset = itertools.accumulate(sign, initial=0)
    real, real_strftime = time.time, time.strftime
    now = lambda: real() + 10 * YEAR + next(offset) * YEAR / 100  # noqa: E731
    monkeypatch.setattr(time, "time", now)
    monkeypatch.setattr(
        time, "strftime", lambda form, when=None: real_strftime(form, when or time.localtime(now()))
    )


def test_a_run_and_its_resume(tmp_path, jumps):
    """Speeds, intervals, files."""
    run = {"tensorboard": True, "checkpoint_interval": 1, "min_interval_s": 0.15, "monitor_interval": 1}
    assert Trainer(resolved(tmp_path, **run), build=Builder(seconds=0.04)).run() == 0
    folder = RunDir(tmp_path / "fake")
    found = [step for step, _ in checkpoint.steps(folder.checkpoints)]
    assert 2 <= len(found) <= 4
    again = resolved(tmp_path, **run)
    again.config.trainer.total_timesteps = 20 * STEPS
    start = checkpoint.latest(folder.checkpoints, pytest.fail)
    assert start.step == 10 * STEPS
    assert Trainer(again, folder=folder, start=start, build=Builder(seconds=0.04)).run() == 0
    rows = list(read_rows(folder.metrics))
    assert [row["train/epoch"] for row in rows] == list(range(1, 21))
    assert all(a["train/seconds"] < b["train/seconds"] for a, b in itertools.pairwise(rows))
    assert 0.8 <= rows[-1]["train/seconds"] < 20
    for row in rows:
        assert 0 < row["perf/steps_per_second"] < STEPS / 0.03
        assert 0 < row["perf/steps_per_second_mean"] < STEPS / 0.03
        assert 0 <= row["perf/first_update_s"] < 3600


def test_the_newest_checkpoint_is_the_one_of_the_most_steps(tmp_path):
    """Whatever their times say."""
    for step, stamp in ((100, 2e9), (200, 1e9), (300, 1.5e9)):
        path = checkpoint.save(tmp_path, step, {}, {})
        os.utime(path, (stamp, stamp))
    assert checkpoint.latest(tmp_path, pytest.fail).step == 300
    checkpoint.prune(tmp_path, 1)
    assert [step for step, _ in checkpoint.steps(tmp_path)] == [300]


def test_names_of_runs_stay_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda form: "-20260101-000000")
    names = [create(str(tmp_path), None, "grid").name for _ in range(3)]
    assert names == ["grid-20260101-000000", "grid-20260101-000000-2", "grid-20260101-000000-3"]


def test_intervals_ask_no_time_of_day(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: pytest.fail("it was asked"))
    interval = Interval(1, min_s=0.05)
    assert not interval.due(1)
    time.sleep(0.06)
    assert interval.due(2)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_age_of_a_process():
    code = (
        "import time; time.sleep(0.3); from metta_fast.machine.process_clock import process_age; "
        "print(process_age())"
    )
    asked = time.monotonic()
    age = float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert 0.29 < age < time.monotonic() - asked + 0.02
    assert process_age() > age
    assert process_start(os.getpid()) == process_start("self")
    assert process_start(2**22 + 1) is None
