"""Tests `--camera`: options, cases, shares, table and rows from made-up children, and a real run and stepper."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from metta_fast.bench.cameras import cases, command
from metta_fast.bench.cameras.child_program import build
from metta_fast.bench.cameras.table import CameraReport
from metta_fast.bench.main import main
from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.camera.artist import Artist, Pictures
from metta_fast.envs.robot.env import RobotFactory
from tests.bench.test_gpu import H100, NO_GPU

CHILD = """
import json, sys
what = json.loads(sys.stdin.readline())
if "env.image.size=84" in what["overrides"] and what["kind"] == "run":
    print(json.dumps({"error": "OutOfMemoryError: too much"}), flush=True)
    sys.exit(1)
print(json.dumps({}), flush=True)
speed = {"run": 500.0, "cpu": 2000.0}[what["kind"]] if what.get("pictures", True) else 4000.0
for line in sys.stdin:
    print(json.dumps({"steps_per_s": speed, "training_steps_per_s": 100.0}), flush=True)
"""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--camera", "lift_cube_wrist", "--robot", "ant"], "not allowed with"),
        (["--camera", "lift_cube_wrist", "--threads", "2"], "--threads 2 goes with --env NAME"),
        (["--robot", "ant", "--sizes", "64"], "--sizes 64 goes with --camera NAME"),
        (["--camera", "nonesuch"], "nonesuch"),
        (["--camera", "ant"], "it sees no pictures"),
        (["--camera", "lift_cube_wrist", "--sizes", "3"], "--sizes 3"),
        (["--camera", "lift_cube_wrist", "--envs", "0"], "--envs 0"),
        (["--camera", "lift_cube_wrist", "--envs", "1,,2"], "--envs 1,,2"),
        (["--camera", "lift_cube_wrist", "env.image.kind=x"], "rgb, depth, rgbd"),
    ],
)
def test_mistakes(words: list[str], says: str, capsys: pytest.CaptureFixture) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_the_batched_renderer_is_measured_where_there_is_a_gpu() -> None:
    pytest.importorskip("mujoco_warp")
    found, notes = cases.groups("lift_cube_wrist", "4096, 1", "64", (), H100)
    assert [(group.renderer, group.envs) for group in found] == [
        ("sequential", 1),
        ("sequential", 4096),
        ("batch", 1),
        ("batch", 4096),
    ]
    assert notes == []
    assert [(side.part, side.size) for side in found[0].sides] == [
        ("physics", 0),
        ("camera", 64),
        ("policy", 64),
    ]
    assert "vector.async_factor=1" in found[0].sides[0].message["overrides"]
    assert "trainer.batch_size=65536" in found[3].sides[2].message["overrides"]
    found, notes = cases.groups("lift_cube_wrist", "4", "64", (), NO_GPU)
    assert [group.renderer for group in found] == ["sequential"]
    assert notes == ["env.renderer=batch is left out: no GPU was found"]


def test_any_robot_with_a_camera() -> None:
    found, _ = cases.groups("ant", "4", "64", ["env.image.cameras=[track]"], NO_GPU)
    assert "env.image.cameras=[track]" in found[0].sides[1].message["overrides"]
    with pytest.raises(UserError, match="no camera"):
        cases.groups("ant", "4", "64", ["env.image.cameras=[tack]"], NO_GPU)


def test_shares_are_of_what_each_part_adds() -> None:
    assert command.shares(100, 50, 25) == {"physics": 0.25, "camera": 0.25, "network": 0.5}
    assert command.shares(100, 200, 100) == {"physics": 1, "camera": 0, "network": 0}


def test_a_table_with_shares_and_a_failure(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    found, notes = cases.groups("lift_cube_wrist", "4", "64,84", (), NO_GPU)
    report = CameraReport({"cpu": "some"}, "the command", notes=notes)
    saved = []
    command.measure(
        report, found, 0.01, 2, lambda _: None, lambda: saved.append(1), (sys.executable, "-c", CHILD)
    )
    report.write(tmp_path / "out.json")
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["name"] for row in rows] == ["sequential, 4 robots, 64 px", "sequential, 4 robots, 84 px"]
    assert rows[0]["parts"]["training"] == {"steps_per_s": 100, "low": 100, "high": 100}
    assert rows[0]["shares"] == pytest.approx({"physics": 0.125, "camera": 0.125, "network": 0.75})
    assert rows[1]["failed"] == {"policy": "OutOfMemoryError: too much"}
    lines = report.show().splitlines()
    assert " ".join(lines[4].split()) == "sequential, 64 px, 4 robots 4 k 2 k 500 100 12% / 12% / 75% 22.9"
    assert lines[5].endswith("policy: OutOfMemoryError: too much")
    assert len(saved) == 1


def test_a_run_and_robots_with_random_actions() -> None:
    pytest.importorskip("mujoco")
    robot = RobotFactory("lift_cube")
    try:
        Artist(
            Pictures(robot.model.path, ("wrist",), 16), 1, len(robot.make_batch(0, 1, 1).physics(0))
        ).close()
    except UserError as error:
        pytest.skip(str(error))
    found, _ = cases.groups("lift_cube_wrist", "2", "24", (), NO_GPU)
    small = ["hardware=cpu", "trainer.batch_size=16", "trainer.minibatch_size=8"]
    for side in found[0].sides[1:]:
        words = [word for word in side.message["overrides"] if not word.startswith(("hardware", "trainer"))]
        with_words = {**side.message, "overrides": [*words, *small]}
        served = build(**with_words)
        rates = served.round(0.05)
        served.close()
        assert rates["steps_per_s"] > 0
        assert ("training_steps_per_s" in rates) == (side.part == "policy")


def test_robots_with_pictures_on_warp(tmp_path: Path) -> None:
    pytest.importorskip("mujoco_warp")
    from metta_fast.bench.robots.stepping import RobotStepping
    from tests.robot.test_batch_renderer import MODEL, cameras

    (tmp_path / "pendulum.xml").write_text(MODEL)
    stepper = RobotStepping(cameras(str(tmp_path / "pendulum.xml")), 2, device="cpu")
    assert stepper.round(0.05)["steps_per_s"] > 0
    assert stepper.buffers.obs["image_side"].float().std() > 1
    stepper.close()
