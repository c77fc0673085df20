"""Tests this folder's programs: options for Gymnasium, the models that presets make, when a level is reached."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mujoco")

from metta_fast.envs.robot.env import RobotFactory, RobotSim
from tests.export.runs import fake_run
from tests.robot.gpu import learn, presets
from tests.robot.gpu.evaluation import Part, gymnasium_options, play


def test_gymnasium_gets_the_runs_own_options(tmp_path: Path) -> None:
    words = ["env=ant", "env.params.healthy_reward=0.5", "env.max_steps=20", "env.params.privileged=true"]
    run = str(fake_run(tmp_path / "run", *words))
    options = gymnasium_options(run)
    assert options == {
        "id": "Ant-v5",
        "max_episode_steps": 20,
        "include_cfrc_ext_in_observation": False,
        "healthy_reward": 0.5,
    }
    found = play(Part(run, True, range(100, 102), options))
    assert len(found) == 2
    assert all(length == 20 and abs(value - 10) < 15 for value, length in found)
    assert found == play(Part(run, True, range(100, 102), options))


@pytest.mark.parametrize(
    ("preset", "substeps", "integrator"), [("exact", 1, "RK4"), ("fast", 2, ""), ("loose", 1, "")]
)
def test_a_changed_model_keeps_the_length_of_a_step(
    preset: str, substeps: int, integrator: str, tmp_path: Path
) -> None:
    own = RobotFactory("hopper")
    file, found = presets.changed_model(own.model.path, preset, tmp_path)
    assert found == substeps
    assert ('integrator="RK4"' in Path(file).read_text()) == bool(integrator)
    assert RobotFactory("hopper", xml_file=file, frame_skip=4 * found).step_s == pytest.approx(own.step_s)


def test_the_exact_preset_is_the_robot_itself(tmp_path: Path) -> None:
    case = presets.Case("hopper", {}, "zeros", lambda obs: np.zeros((len(obs), 3)))
    made = presets.OnCpu(case, "exact", 2, 5, tmp_path)
    sim = RobotSim("hopper", seed=5, env_id=1)
    first = sim.reset()
    assert np.allclose(made.obs[1], first, atol=1e-6)
    for _ in range(5):
        made.step(np.full((2, 3), 0.3))
        obs, reward, *_ = sim.step(np.full(3, 0.3, np.float32))
        assert np.allclose(made.obs[1], obs, atol=1e-5)
        assert made.reward[1] == pytest.approx(reward, abs=1e-5)
    assert made.most()[0] > 0
    found = presets.measure(case, made, 30, 0.008)
    assert found["steps"] <= 60
    assert found["reward"][0] == pytest.approx(1, abs=0.7)


def test_a_level_counts_where_the_mean_of_some_points_reaches_it() -> None:
    curve = [[float(i), i, float(value)] for i, value in enumerate([0, 9, 9, 0, 5, 6, 7, 8, 9, 9, 9])]
    assert learn.first_time(curve, 7) == 8
    assert learn.first_time(curve, 20) is None


def test_runs_are_planned_for_each_robot_seed_preset_and_setting(tmp_path: Path) -> None:
    given = Namespace(
        robots=["ant", "hopper"],
        seeds=["1", "hopper:2"],
        presets=["fast"],
        setting=[("base", ""), ("hopper:far", "trainer.gamma=0.997")],
        until=["ant=0.5"],
        words=[("hopper", "seed=9")],
        minutes=2.0,
        per_gpu=2,
        alone=["hopper:2"],
        out=tmp_path,
    )
    jobs = learn.planned(given)
    assert [job.folder.name for job in jobs] == [
        "ant-fast-base-1",
        "hopper-fast-base-1",
        "hopper-fast-far-1",
        "hopper-fast-base-2",
        "hopper-fast-far-2",
    ]
    assert [job.limit_s for job in jobs[:2]] == [30, 120]
    assert jobs[2].words == ["seed=9", "trainer.gamma=0.997"]
    assert [job.alone for job in jobs] == [False, False, False, True, True]
