"""Tests the profiler: times add up, traces are written when asked for, and nothing is left behind."""

from __future__ import annotations

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from metta_fast.algorithms.hooks import Hooks
from metta_fast.features import make_features, profiler
from metta_fast.runtime.timer import PHASES, DeviceTimer, ExactTimer
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_device_rollout import device_ppo
from tests.ppo.test_rollout import weights


def hooks(folder: Path | None = None, **keys: Any) -> Hooks:
    return make_features({"profiler": {"interval_epochs": 2, **keys}}, folder=folder)


def traced(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("traces/*"))


def epochs(ppo: Any, count: int) -> None:
    for _ in range(count):
        ppo.collect()
        ppo.update()


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "LOOK_S", 0.0)


@pytest.mark.parametrize("make", [make_ppo, device_ppo])
def test_phases_and_the_rest_are_the_epoch(make: Any) -> None:
    ppo = make(tickers(4), hooks=hooks())
    rows = []
    for _ in range(6):
        epochs(ppo, 1)
        rows.append({name: value for name, value in ppo.metrics().items() if name.startswith("profile/")})
    ppo.vec.close()
    assert [bool(row) for row in rows] == [False, True, False, True, False, True]
    row = rows[-1]
    assert set(row) == {
        f"profile/{name}{end}" for name in (*PHASES, "epoch", "other") for end in ("", "_max")
    }
    parts = sum(row[f"profile/{name}"] for name in (*PHASES, "other"))
    assert parts == pytest.approx(row["profile/epoch"], rel=1e-6)
    assert all(row[f"profile/{name}"] <= row[f"profile/{name}_max"] + 1e-12 for name in (*PHASES, "epoch"))
    assert row["profile/update"] > 0


def test_a_trace_comes_when_the_file_asks(tmp_path: Path) -> None:
    asked = hooks(tmp_path, trace_epochs=2)
    ppo = make_ppo(tickers(2), hooks=asked)
    epochs(ppo, 1)
    assert traced(tmp_path) == []
    (tmp_path / "trace").touch()
    epochs(ppo, 3)
    ppo.vec.close()
    assert traced(tmp_path) == ["epoch_2-3.json.gz"]
    assert not (tmp_path / "trace").exists()
    with gzip.open(tmp_path / "traces/epoch_2-3.json.gz") as file:
        names = {event["name"] for event in json.load(file)["traceEvents"]}
    assert any("addmm" in name for name in names)
    for close in asked.on_close:
        close()


def test_a_trace_comes_when_a_signal_asks_and_the_handler_is_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    asked = hooks(tmp_path)
    assert signal.getsignal(signal.SIGUSR1) is before, "nothing is started before the first rollout"
    ppo = make_ppo(tickers(2), hooks=asked)
    epochs(ppo, 1)
    os.kill(os.getpid(), signal.SIGUSR1)
    epochs(ppo, 2)
    assert traced(tmp_path) == ["epoch_2.json.gz"]
    for close in asked.on_close:
        close()
    ppo.vec.close()
    assert signal.getsignal(signal.SIGUSR1) == before


def test_a_signal_that_ends_the_run_is_left_to_it(tmp_path: Path) -> None:
    """Under SLURM, the trainer has taken SIGUSR1 before the first rollout."""
    came = []
    before = signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
    try:
        mine, asked = signal.getsignal(signal.SIGUSR1), hooks(tmp_path)
        ppo = make_ppo(tickers(2), hooks=asked)
        epochs(ppo, 1)
        os.kill(os.getpid(), signal.SIGUSR1)
        epochs(ppo, 1)
        for close in asked.on_close:
            close()
        ppo.vec.close()
        assert came == [1]
        assert traced(tmp_path) == []
        assert signal.getsignal(signal.SIGUSR1) is mine
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_trace_from_an_epoch_on_is_written_at_the_end_at_the_latest(tmp_path: Path) -> None:
    asked = hooks(tmp_path, trace_from=2, trace_epochs=5)
    ppo = run(make_ppo(tickers(2), hooks=asked), 3)
    assert ppo.epoch == 3
    assert traced(tmp_path) == []
    for close in asked.on_close:
        close()
    assert traced(tmp_path) == ["epoch_2.json.gz"]


def test_the_training_is_the_same_with_and_without(tmp_path: Path) -> None:
    bare = weights(run(make_ppo(tickers(4)), 4))
    asked = hooks(tmp_path, trace_from=2)
    assert torch.equal(bare, weights(run(make_ppo(tickers(4), hooks=asked), 4)))
    for close in asked.on_close:
        close()


def test_sync_waits_for_the_device_at_each_lap(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hooks().exact_times
    assert hooks(sync=True).exact_times
    waits: list[int] = []
    capturing = False
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(1))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    timer = ExactTimer()
    timer.start()
    timer.lap("env")
    assert len(waits) == 2
    capturing = True  # a graph's launches are only recorded: waiting would break the capture
    timer.lap("update")
    assert len(waits) == 2


def test_phases_on_the_gpu_are_added_up() -> None:
    """Environments that the host calls in every row alternate with the policy's part."""

    class Moment:
        def __init__(self, at: float) -> None:
            self.at = at

        def elapsed_time(self, later: Moment) -> float:
            return later.at - self.at

    def moments(*marks: tuple[str, float]) -> Any:
        return [(phase, Moment(at)) for phase, at in marks]

    timer, wanted = DeviceTimer(), {"inference": 0.004, "env": 0.006, "update": 0.01}
    rollout = ("", 0), ("inference", 1), ("env", 4), ("inference", 5), ("env", 8), ("inference", 10)
    timer._marks = moments(*rollout, ("update", 20))
    assert timer.phases() == pytest.approx(wanted)
    timer._done, timer._marks = timer._marks, moments(*rollout)  # launched ahead, not yet done
    assert timer.phases() == pytest.approx(wanted)
