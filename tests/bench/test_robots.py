"""Tests `--robot`: options, cases, table and rows from made-up children, and a real stepper on Warp's CPU device."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from metta_fast.bench.gpu import command as gpu
from metta_fast.bench.main import main
from metta_fast.bench.robots import cases, command
from metta_fast.bench.robots.table import RobotReport
from metta_fast.contracts.errors import UserError
from tests.bench.test_gpu import H100, NO_GPU

CHILD = """
import json, sys
what = json.loads(sys.stdin.readline())
if "env.params.preset=loose" in what["overrides"]:
    print(json.dumps({"error": "OutOfMemoryError: too much"}), flush=True)
    sys.exit(1)
print(json.dumps({"build_s": 2.0, "notes": ["a note"]}), flush=True)
speed = 2e6 if "env.device=cuda" in what["overrides"] else 1e5
for line in sys.stdin:
    print(json.dumps({"steps_per_s": speed, "memory_mib": 7.0}), flush=True)
"""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--robot", "ant", "--gpu"], "not allowed with"),
        (["--robot", "ant", "--threads", "2"], "--threads 2 goes with --env NAME"),
        (["--robot", "ant", "env.num_envs=3"], "key=value goes with"),
        (["--sb3", "ant", "--envs", "3"], "--robot NAME"),
        (["--robot", "ant"], "--robot needs an NVIDIA GPU"),
    ],
)
def test_mistakes(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(gpu.hardware, "detect", lambda: NO_GPU)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_cases_are_each_preset_beside_the_cpu() -> None:
    pytest.importorskip("mujoco_warp")
    groups = cases.cases("hopper", "2048, 16,16", H100)
    assert [[case.what for case in group] for group in groups] == [["physics"] * 4, ["training"] * 4] * 2
    assert [case.preset for case in groups[0]] == ["", "exact", "fast", "loose"]
    assert [group[1].envs for group in groups] == [16, 16, 2048, 2048]
    assert groups[0][0].message["num_envs"] == 64 * 16
    assert "trainer.batch_size=32768" in groups[3][1].message["overrides"]


@pytest.mark.parametrize(
    ("recipe", "envs", "says"),
    [
        ("grid_solo", "16", "has no presets"),
        ("hopper", "16,", "--envs 16,"),
        ("hopper", "0", "whole numbers of at least 1"),
        ("no_such", "16", "no_such"),
    ],
)
def test_what_cannot_be_measured(recipe: str, envs: str, says: str) -> None:
    pytest.importorskip("mujoco_warp")
    with pytest.raises(UserError, match=says):
        cases.cases(recipe, envs, H100)


def test_a_table_with_speeds_over_the_cpus_and_a_failure(tmp_path: Path) -> None:
    def case(preset: str, envs: int) -> cases.Case:
        words = [f"env.device={'cuda' if preset else 'cpu'}", f"env.params.preset={preset}"]
        return cases.Case("physics", preset, envs, {"kind": "physics", "overrides": words})

    report = RobotReport({"cpu": "some"}, "the command")
    saved = []
    group = [case("", 64), case("exact", 4096), case("loose", 4096)]
    said: list[str] = []
    command.measure(
        report, [group], 0.01, 2, said.append, lambda: saved.append(1), (sys.executable, "-c", CHILD)
    )
    report.write(tmp_path / "out.json")
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["name"] for row in rows] == [one.name for one in group]
    assert rows[1]["times_cpu"] == 20
    assert "times_cpu" not in rows[0]
    assert rows[2]["failed"] == "OutOfMemoryError: too much"
    table = report.show().splitlines()
    assert table[3].split() == (
        [
            "physics",
            "and",
            "rules,",
            "random",
            "actions",
            "steps/s",
            "low",
            "high",
            "times",
            "the",
            "CPU",
            "build",
            "s",
            "MiB",
        ]
    )
    assert table[5].split() == ["exact,", "4096", "robots", "2", "M", "2", "M", "2", "M", "20.0", "2.0", "7"]
    assert table[6].split() == ["loose,", "4096", "robots", "failed:", "OutOfMemoryError:", "too", "much"]
    assert table[-1] == "note: a note"
    assert (len(saved), said[0]) == (1, f"building {'; '.join(one.name for one in group)}")


def test_a_robot_steps_without_a_policy() -> None:
    pytest.importorskip("mujoco_warp")
    from metta_fast.bench.robots.stepping import HORIZON, RobotStepping
    from metta_fast.envs.robot.env import RobotFactory

    stepper = RobotStepping(RobotFactory("inverted_double_pendulum", preset="fast"), 4, device="cpu")
    ready: Any = stepper.ready()
    assert ready["notes"][0].startswith("inverted_double_pendulum: preset=fast")
    rows = stepper._rows
    found = stepper.round(0.05)
    assert stepper._rows >= rows + HORIZON
    assert 0 < found["steps_per_s"] <= 4e6 / found["us_per_row"]
    assert stepper.buffers.reward.any()
    stepper.close()
