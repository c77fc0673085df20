"""The task lift_cube: what counts as lifted, its starts, and that its physics can do it (by a written controller)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")

import mujoco

from metta_fast.contracts.env import EVAL_SEED_BIT, Array
from metta_fast.envs.robot.env import RobotSim
from tests.robot.lift_by_hand import Controller, lift

IDLE = np.zeros(7, np.float32)
EPISODES = 40


def robot(**keys: Any) -> tuple[RobotSim, Controller]:
    sim = RobotSim("lift_cube", seed=EVAL_SEED_BIT | 100, **keys)
    sim.reset()
    return sim, Controller(mujoco.MjModel.from_xml_path(sim.factory.model.path))


def starts(sim: RobotSim, number: int) -> Array:
    """Returns qpos of the first rows of episodes of one step."""
    found = []
    for _ in range(number):
        found.append(sim.batch.get_state(0)[0])
        sim.step(IDLE)
        sim.step(IDLE)
    return np.array(found)


def test_a_written_controller_lifts_the_cube() -> None:
    sim, controller = robot()
    ends = []
    for _ in range(EPISODES):
        ends.append(lift(sim, controller))
        assert sim.rows.truncation[0]
        sim.step(IDLE)
    assert np.mean([info["success"] for info in ends]) >= 0.95
    assert sum(info["height"] > 0.1 for info in ends) >= 0.95 * EPISODES


def test_open_fingers_lift_nothing() -> None:
    sim, controller = robot()
    info = lift(sim, controller, closes=False)
    assert (info["success"], info["grasp"]) == (0, 0)
    assert info["height"] == pytest.approx(0.02, abs=1e-3)


def test_it_is_friction_that_holds_the_cube(tmp_path: Path) -> None:
    """The same moves without friction between pads and cube lift nothing, and no constraint knows of the cube."""
    own, controller = robot()
    model = controller.model
    fingers = {model.joint(name).id for name in ("left_finger", "right_finger")}
    assert (model.eq_type == mujoco.mjtEq.mjEQ_JOINT).all()
    assert {*model.eq_obj1id, *model.eq_obj2id} <= fingers
    assert (model.geom_margin == 0).all()
    assert (model.geom_gap == 0).all()
    text = Path(own.factory.model.path).read_text()
    slippery = text.replace('friction="1 0.01 0.0001"', 'friction="0.001 0 0" priority="1"')
    assert slippery != text
    (tmp_path / "slippery.xml").write_text(slippery)
    sim, controller = robot(xml_file=str(tmp_path / "slippery.xml"))
    assert lift(sim, controller)["success"] == 0


def test_the_last_ten_steps_count() -> None:
    """A cube that is let go five steps before the end was not lifted during the last ten; nine steps are too few."""
    sim, controller = robot()
    qpos, _ = sim.batch.get_state(0)
    yaw = (2 * np.arctan2(qpos[14], qpos[11]) + np.pi / 4) % (np.pi / 2) - np.pi / 4
    row, infos = [], []
    for t in range(100):
        action = controller.act(sim.batch.get_state(0)[0], t, yaw)
        if t >= 95:
            action[6] = -0.15
        infos.append(sim.step(action)[-1])
        row.append(bool(infos[-1]["height"] >= 0.1 and infos[-1]["grasp"]))
    assert row[94]
    assert infos[94]["success"] == 1
    assert infos[99]["success"] == 0
    first = row.index(True)
    assert [info["success"] for info in infos[first : first + 11]] == [0] * 9 + [1] * 2


def test_a_pad_on_one_side_is_no_grasp() -> None:
    """Fingers that touch the cube from one side push it."""
    sim, _ = robot(reset_noise_scale=0.0, frame_skip=1)
    qpos, qvel = sim.batch.get_state(0)
    qpos[8:15] = [0.45, 0.032, 0.19, 1, 0, 0, 0]  # beside the left pad at its outer side
    qpos[6:8] = 0.04
    sim.set_state(qpos, qvel)
    touched = False
    for _ in range(8):
        *_, info = sim.step(np.array([0, 0, 0, 0, 0, 0, -0.15], np.float32))
        touched |= bool(np.abs(sim.obs[-2:]).max() > 0)
        assert info["grasp"] == 0
    assert touched


def test_cubes_start_in_the_whole_square_with_any_yaw() -> None:
    sim, _ = robot(max_steps=1)
    cubes = starts(sim, 800)[:, 8:]
    places = (cubes[:, :2] - [0.45, 0]) / 0.2
    assert (np.abs(places) <= 0.5).all()
    assert (np.histogram2d(*places.T, bins=4)[0] > 20).all()
    yaw = 2 * np.arctan2(cubes[:, 6], cubes[:, 3])
    assert (np.histogram(yaw % (2 * np.pi), bins=8)[0] > 60).all()
    assert (cubes[:, 2] == 0.02).all()
    assert (cubes[:, 4:6] == 0).all()


def test_the_curriculum_is_off_in_evaluation() -> None:
    def held(seed: int) -> float:
        sim = RobotSim("lift_cube", seed=seed, max_steps=1, curriculum=0.5)
        sim.reset()
        return float((starts(sim, 200)[:, 10] > 0.1).mean())

    assert 0.4 < held(100) < 0.6
    assert held(EVAL_SEED_BIT | 100) == 0


def test_what_is_observed() -> None:
    """The cube beside the tip, in the hand's frame, by NumPy."""
    sim, _ = robot()
    for t in range(12):
        sim.step(np.array([0.5, 0.3, -0.4, 1.0, 0.7, -1.5, 0.1 * (t % 3)], np.float32))
    obs = sim.obs
    model = mujoco.MjModel.from_xml_path(sim.factory.model.path)
    data = mujoco.MjData(model)
    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    mujoco.mj_setState(model, data, sim.batch.physics(0), kind)
    mujoco.mj_forward(model, data)
    hand = data.body("hand").xmat.reshape(3, 3)
    tip, cube = data.site("tip").xpos, data.body("cube").xpos
    np.testing.assert_allclose(obs[:8], data.qpos[:8])
    np.testing.assert_allclose(obs[8:16], data.qvel[:8])
    np.testing.assert_allclose(obs[16], data.act[0] - data.qpos[6])
    near = 0.01 * 1.5 * 2  # positions that follow from qpos are one substep old, as in all robots
    np.testing.assert_allclose(obs[17:20], tip, atol=near)
    np.testing.assert_allclose(obs[23:26], hand.T @ (cube - tip), atol=near)
    turned = hand.T @ data.body("cube").xmat.reshape(3, 3)
    np.testing.assert_allclose(obs[26:32], np.r_[turned[:, 0], turned[:, 2]], atol=near)
