"""Tests `--vector`: what counts as a step for each library, the table, what cannot be measured, and mistakes."""

import json

import pytest

from metta_fast.bench.harness import libraries
from metta_fast.bench.harness.libraries import GYMNASIUM, Library
from metta_fast.bench.main import main
from metta_fast.bench.stepping import vector_peers, vector_sides
from metta_fast.bench.stepping.vector_rivals import make
from metta_fast.bench.stepping.vector_sides import SIDES, Side, Wanted, wanted
from metta_fast.bench.stepping.vector_table import VectorReport
from metta_fast.bench.stepping.vector_tasks import TASKS, Busy, Images
from metta_fast.machine.hardware import GIB, Machine
from metta_fast.machine.installation import install_packages

SERIAL = Side("ours", "auto", "auto")
SYNC = next(side for side in SIDES if side.variant == "SyncVectorEnv")
NOWHERE = Library("No such", "no_such_module", ("no-such",))


# ---- what is counted ----


@pytest.mark.parametrize(
    ("kind", "variant", "module"),
    [
        ("gymnasium", "SyncVectorEnv", "gymnasium"),
        ("pufferlib", "Serial", "pufferlib"),
        ("envpool", "all", "envpool"),
    ],
)
def test_calls_that_begin_an_episode_are_no_steps(kind, variant, module):
    pytest.importorskip(module)
    found = make(kind, variant, "cartpole_c" if kind == "envpool" else "cartpole", 3, 1).stepper
    try:
        acted = ended = 0
        for _ in range(200):
            before = int(found._ended.sum())
            acted += found.step()
            ended += before
    finally:
        found.close()
    assert ended > 0
    assert acted == 3 * 200 - ended


def test_stable_baselines_resets_within_the_step():
    pytest.importorskip("stable_baselines3")
    found = make("sb3", "DummyVecEnv", "cartpole", 3, 1)
    assert sum(found.stepper.step() for _ in range(50)) == 150
    found.close()


@pytest.mark.parametrize(
    ("variant", "task", "chosen"),
    [
        ("serial", "image", "serial"),
        ("threads", "cartpole", "threads 2"),
        ("workers", "cartpole", "workers 2"),
    ],
)
def test_ours_give_rounds_and_say_what_steps(variant, task, chosen):
    found = make("ours", variant, task, 4, 2)
    try:
        assert found.ready()["chosen"] == chosen
        assert found.round(0.02)["steps_per_s"] > 0
    finally:
        found.close()


def test_the_memory_of_a_process_is_measured():
    found = make("gymnasium", "AsyncVectorEnv", "busy", 2, 1)
    try:
        found.round(0.01)
        assert 1 << 20 < found.memory()["bytes"] < 1 << 30
    finally:
        found.close()


def test_pufferlib_gives_rounds():
    pytest.importorskip("pufferlib")
    found = make("pufferlib", "Multiprocessing, half the cores", "cartpole", 4, 2)
    try:
        assert found.round(0.05)["steps_per_s"] > 10
    finally:
        found.close()


def test_the_environments_end_by_a_time_limit():
    for kind in (Busy, Images):
        env = kind()
        env.work = lambda: None
        assert env.observation_space.contains(env.reset(seed=0)[0])
        ends = [env.step(0)[2:4] for _ in range(200)]
        assert ends == [(False, False)] * 199 + [(False, True)]
    first, second = env.observe(), env.observe()
    assert first is not second, "a new array each time"


# ---- the table ----


def test_the_table_has_a_row_for_each_number_and_fits_100_columns():
    report = VectorReport({"cpu": "x"}, "command")
    for task in TASKS.values():
        for envs in (8, 512):
            sides = [side for side in SIDES if task.name in side.tasks]
            speeds = {side: [1000.0 + i, 1e6 + i] for i, side in enumerate(sides)}
            report.add_cell(task, envs, speeds, {side: "workers 512" for side in sides if not side.library})
    table = report.show()
    assert max(map(len, table.splitlines())) <= 100
    for heading in ("CartPole-v1, environment steps per second", "Gymnasium", "Multipr.", "Our backends"):
        assert heading in table
    assert "workers 512" in table
    assert "× half" in table
    assert len(report.ratios) == 10


def test_the_ratio_is_to_the_fastest_other_and_pairs_rounds():
    report = VectorReport({}, "")
    slow = Side("sb3", "DummyVecEnv", "Dummy", libraries.SB3)
    task = TASKS["busy"]
    report.add_cell(task, 8, {SERIAL: [20.0, 40.0], SYNC: [10.0, 40.0], slow: [5.0]}, {SERIAL: "serial"})
    ratio = report.ratios[0]
    assert (ratio["value"], ratio["low"], ratio["high"], ratio["peer"]) == (1.5, 1.0, 2.0, SYNC.name)
    report.add_cell(task, 64, {SERIAL: [20.0, 40.0], SYNC: [10.0]}, {SERIAL: "serial"})
    assert report.ratios[1]["value"] == 3.0  # not repeated: of the medians
    assert "1.50 × Sync" in report.show()


# ---- the command ----


def measured(monkeypatch, sides, needs=None, free=64 * GIB):
    monkeypatch.setattr(vector_peers, "SIDES", sides)
    monkeypatch.setattr(vector_peers.hardware, "detect", lambda: Machine(2, 2, 64 * GIB, free=free))
    report = VectorReport({}, "x")
    vector_peers.measure(
        report, Wanted(False, ("image",), vector_sides.RIVALS, (2,)), 0.02, 1, lambda line: None
    )
    return report


def test_what_is_not_installed_is_named_with_its_command(monkeypatch):
    assert NOWHERE.version() == ""
    gone = Side("gymnasium", "x", "Gone", NOWHERE)
    report = measured(monkeypatch, (SERIAL, SYNC, gone))
    assert [row["peer"] for row in report.rows] == ["ours, auto", SYNC.name]
    assert report.notes[0] == f"absent: No such: not installed ({install_packages('no-such')})"
    assert report.to_json()["absent"][0]["why"] == "absent"
    assert len(report.ratios) == 1


def test_processes_that_do_not_fit_into_memory_and_failures_are_named(monkeypatch):
    large = Side("gymnasium", "AsyncVectorEnv", "Async", GYMNASIUM, True)
    broken = Side("gymnasium", "NoVectorEnv", "Broken", GYMNASIUM)
    report = measured(monkeypatch, (large, broken), free=1 << 20)
    assert [one["why"] for one in report.absent] == ["memory", "failed"]
    assert "needs" in report.notes[0]
    assert "GiB are free" in report.notes[0]
    assert "NoVectorEnv" in report.notes[1]
    assert report.show()  # without any row


def test_the_command_measures_a_part(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(vector_peers, "SIDES", (Side("ours", "serial", "serial"), SYNC))
    file = tmp_path / "figures.json"
    words = ["--vector", "--vector-env", "busy", "--vector-rival", "envpool", "--envs", "1", "--quick"]
    assert main([*words, "--seconds", "0.02", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert {row["column"] for row in document["rows"]} == {"serial"}
    assert "computing 1 ms a step, environment steps per second" in capsys.readouterr().out


def test_the_default_is_everything():
    every = wanted(None, None, None)
    assert every.own_cost
    assert every.tasks == tuple(TASKS)
    assert every.envs == (8, 64, 512)
    assert wanted("sleep", "sb3", "64, 8") == Wanted(False, ("sleep",), ("sb3",), (8, 64))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--vector --vector-env slep", "'slep' is not known; did you mean 'sleep'?"),
        ("--vector --vector-env=", "'' is not known"),
        ("--vector --vector-rival gym", "there are gymnasium, sb3, pufferlib, envpool"),
        ("--vector --envs 0", "'0' is not a whole number from 1 to 65536"),
        ("--vector --envs 8,x", "'x' is not a whole number"),
        ("--vector-env sleep", "--vector-env sleep goes with --vector"),
        ("--train --vector-rival sb3", "--vector-rival sb3 goes with --vector"),
        ("--envs 4", "--envs 4 goes with --env NAME, --robot NAME, --camera NAME or --vector"),
    ],
)
def test_mistakes_are_told_in_one_line(words, message, capsys):
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
