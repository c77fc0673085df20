"""Tests the machine time of a run over all its sessions: what summary.json, metrics and the last lines say."""

from __future__ import annotations

import itertools
import json
import time

import pytest

from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.vector import WorkerError
from metta_fast.machine.hardware import Gpu, Machine
from metta_fast.metrics.loggers import read_rows
from metta_fast.metrics.machine_time import MachineTime, Place
from metta_fast.metrics.solved import Solved
from metta_fast.run.trainer import Trainer
from metta_fast.storage import checkpoint
from metta_fast.storage.altered import WrongState
from metta_fast.storage.run_folder import RunDir
from tests.run.fake import STEPS, Builder, resolved

CARD, CORES = Place("gpu", "card"), Place("cpu", "2 cores")


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets: clock[0] is the time."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def rows(folder, **seconds):
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(
            json.dumps({"train/steps": 1, **{f"perf/{k}_seconds": v for k, v in seconds.items()}}) + "\n"
        )


def test_a_session_counts_from_its_command_to_now(tmp_path, clock):
    spent = MachineTime(tmp_path, CARD, 990.0)
    clock[0] = 1026.0
    assert spent.row(7200) == {"perf/gpu_seconds": 36.0, "perf/steps_per_gpu_hour": 720_000.0}
    spent.write(7200)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["steps"], summary["gpu_seconds"], summary["steps_per_gpu_hour"]) == (
        7200,
        36.0,
        720_000.0,
    )
    assert spent.lines(7200) == ["36.0 GPU-seconds on card: 720K steps per GPU-hour"]


def test_sessions_on_several_machines_and_what_a_kill_lost(tmp_path, clock):
    """100 s on two cards of which a kill loses the last 40, then 10 s on two cores, whose steps are half."""
    first = MachineTime(tmp_path, Place("gpu", "card", 2), 1000.0)
    clock[0] = 1060.0
    kept = first.state(600)  # of the checkpoint
    first.write(600)
    clock[0] = 1100.0
    rows(tmp_path, **{k.removeprefix("perf/").removesuffix("_seconds"): v for k, v in first.row(900).items()
                      if k.endswith("seconds")})  # fmt: skip
    second = MachineTime(tmp_path, CORES, 1100.0, 600, json.loads(json.dumps(kept)))
    clock[0] = 1110.0
    assert second.row(700) == {
        "perf/gpu_seconds": 200.0,
        "perf/steps_per_gpu_hour": 600 * 18.0,
        "perf/machine_seconds": 10.0,
        "perf/steps_per_machine_hour": 36_000.0,
    }
    assert second.lines(700) == [
        "200.0 GPU-seconds on 2 × card: 10.8K steps per GPU-hour",
        "10.0 machine-seconds on 2 cores: 36K steps per machine-hour",
    ]


def test_a_session_that_died_before_its_first_checkpoint_counts(tmp_path, clock):
    """Its summary.json was written when it began; its last row says how long it was."""
    first = MachineTime(tmp_path, CARD, 1000.0)
    clock[0] = 1010.0
    kept = first.state(100)
    first.write(100)
    second = MachineTime(tmp_path, CARD, 1010.0, 100, kept)
    second.write(100)
    clock[0] = 1015.0
    rows(tmp_path, gpu=second.row(150)["perf/gpu_seconds"])
    (tmp_path / "metrics.jsonl").open("a").write('{"perf/gpu_seconds": 99')  # cut short by the kill
    third = MachineTime(tmp_path, CARD, 1015.0, 100, kept)
    clock[0] = 1020.0
    (part,) = third.parts(200)
    assert (part.seconds, part.steps, part.sessions) == (20.0, 200, 3)
    assert third.lines(200)[0].startswith("20.0 GPU-seconds on card in 3 sessions: ")


def test_going_back_takes_steps_away_and_no_time(tmp_path, clock):
    first = MachineTime(tmp_path, CARD, 1000.0)
    clock[0] = 1010.0
    second = MachineTime(tmp_path, CORES, 1010.0, 100, first.state(100))
    clock[0] = 1020.0
    third = MachineTime(tmp_path, CARD, 1020.0, 40, second.state(300))
    parts = third.parts(40)
    assert [(part.steps, part.seconds) for part in parts] == [(40, 10.0), (0, 10.0), (0, 0.0)]


def test_goals_are_kept_with_their_first_time(tmp_path, clock):
    spent = MachineTime(tmp_path, CARD, 1000.0)
    clock[0] = 1900.0
    spent.reach(475.0, 5000)
    again = MachineTime(tmp_path, CARD, 1900.0, 6000, json.loads(json.dumps(spent.state(6000))))
    clock[0] = 2000.0
    again.reach(475.0, 7000)
    assert again.lines(7000)[1:] == ["a mean return of 475 after 0.25 GPU-hours, at step 5000"]


@pytest.mark.parametrize(("change", "said"), [
    ({"parts": 3}, "machine_time.parts is not a list"),
    ({"parts": [{}]}, r"machine_time.parts\[0\].on is missing"),
    ({"parts": [{"on": "tpu"}]}, "'tpu', expected one of gpu, cpu"),
    ({"reached": [{"goal": "x", "step": 1}]}, r"machine_time.reached\[0\].goal is 'x'"),
])  # fmt: skip
def test_a_wrong_record_is_named(tmp_path, change, said):
    with pytest.raises(WrongState, match=said):
        MachineTime(tmp_path, CARD, 0.0, 0, {"parts": [], "reached": [], **change})
    (tmp_path / "summary.json").write_text(json.dumps({"parts": [], "reached": [], **change}))
    assert "summary.json cannot be read" in MachineTime(tmp_path, CARD, 0.0).problem


def test_a_run_that_is_broken_and_resumed(tmp_path, capsys):
    """The trainer's own: metrics, summary.json, checkpoints and the last lines agree, also on a GPU's name."""
    run = resolved(tmp_path)
    run.machine = Machine(cores=2, cores_total=2, memory=1, gpus=(Gpu("card", 1),))
    broken = Builder(fail={6: WorkerError("gone")}, seconds=0.02)
    assert Trainer(run, build=broken, began=time.monotonic() - 5.0).run() == 1
    folder = RunDir(tmp_path / "fake")
    start = checkpoint.latest(folder.checkpoints, pytest.fail)
    again = resolved(tmp_path)
    again.machine = run.machine
    assert Trainer(again, folder=folder, start=start, build=Builder(seconds=0.02)).run() == 0
    summary = json.loads((folder.path / "summary.json").read_text())
    (part,) = summary["parts"]
    assert (part["sessions"], part["steps"], part["machine"]) == (2, 10 * STEPS, "2 cores")
    assert 5.2 < part["seconds"] == pytest.approx(summary["machine_seconds"], abs=0.1)
    found = list(read_rows(folder.metrics))
    seconds = [row["perf/machine_seconds"] for row in found]
    assert seconds[0] > 5.0
    assert all(a < b for a, b in itertools.pairwise(seconds))
    assert found[-1]["perf/steps_per_machine_hour"] == pytest.approx(3600 * 10 * STEPS / seconds[-1])
    said = capsys.readouterr().err
    assert "machine-seconds on 2 cores in 2 sessions: " in said
    assert said.rstrip().splitlines()[-1].startswith("trained to 1000 steps")


def test_goals_come_from_the_threshold_and_the_value_to_stop_at():
    spec = EnvSpec("e", 1, {}, None, reward_threshold=0.5)
    watch = Solved(0.8, spec)
    for mean, goals in ((0.4, []), (0.6, [0.5]), (0.4, [0.5]), (0.9, [0.5, 0.8])):
        watch.see({"env/episodes": 100.0, "env/return_100": mean}, 1)
        assert watch.reached == goals


def test_a_full_disk_is_a_warning(tmp_path, capsys, monkeypatch):
    def full(self, step):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MachineTime, "write", full)
    assert Trainer(resolved(tmp_path), build=Builder()).run() == 0
    assert capsys.readouterr().err.count("summary.json cannot be written: No space left on device") == 1
