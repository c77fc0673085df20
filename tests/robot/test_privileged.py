"""Tests env.params.privileged: the critic sees MuJoCo's values, and the actor's observation is unchanged."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

pytest.importorskip("mujoco")

import metta_fast
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.envs.robot.env import RobotFactory, RobotSim
from metta_fast.export.main import export_policy
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from tests.export.runs import fake_run

TASKS = {"ant": "Ant-v5", "hopper": "Hopper-v5", "humanoid_standup": "HumanoidStandup-v5"}


@pytest.mark.parametrize("task", TASKS)
def test_it_is_what_gymnasiums_own_physics_holds(task):
    env = gymnasium.make(TASKS[task]).unwrapped
    env.reset(seed=3)
    sim, plain = (RobotSim(task, seed=1, privileged=privileged) for privileged in (True, False))
    qpos, qvel = env.data.qpos.copy(), env.data.qvel.copy()
    sim.set_state(qpos, qvel)
    plain.set_state(qpos, qvel)
    env.set_state(qpos, qvel)
    rng = np.random.default_rng(0)
    touched = 0.0
    for _ in range(60):
        action = rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32)
        env.step(action)
        obs, _, terminal, _, _ = sim.step(action)
        assert np.array_equal(obs, plain.step(action)[0])
        held = (env.data.qpos, env.data.qvel, env.data.qfrc_actuator, env.data.cfrc_ext[1:].ravel())
        assert np.array_equal(sim.rows.obs["privileged"][0], np.concatenate(held).astype(np.float32))
        touched = max(touched, float(np.abs(held[3]).max()))
        if terminal:
            break
    assert touched > 0


def test_the_last_good_row_stays_where_the_physics_breaks():
    sim = RobotSim("hopper", privileged=True)
    sim.reset()
    qpos, qvel = sim.batch.get_state(0)
    sim.set_state(qpos, qvel + 1e12)
    sim.step(np.zeros(3, np.float32))
    assert sim.rows.terminal[0]
    row = sim.rows.obs["privileged"]
    assert row.shape == (1, 6 + 2 * 6 + 6 * 4)
    assert np.array_equal(row[0, :12], np.concatenate([qpos, qvel + 1e12]).astype(np.float32))


def test_it_is_a_key_of_the_robot_and_pickles():
    composed = compose(["hardware=cpu", "env=ant", "env.params.privileged=true"])
    factory = make_factory(resolve(composed).config.env)
    assert factory.spec.privileged == ("privileged",)
    assert factory.spec.obs["privileged"].shape == (15 + 2 * 14 + 6 * 13,)
    function, arguments = factory.__reduce__()
    assert function(*arguments).spec == factory.spec
    with pytest.raises(UserError, match=r"privileged='yes': expected true or false"):
        RobotFactory("ant", privileged="yes")
    with pytest.raises(
        UserError, match=r"ant tells that privileged is for the critic alone; give policy\.shared=f"
    ):
        resolve(compose(["hardware=cpu", "env=ant", "env.params.privileged=true", "policy.shared=true"]))


def test_a_loaded_policy_and_a_file_of_it_take_the_actors_observation(tmp_path):
    run = fake_run(tmp_path / "run", "env=hopper", "env.params.privileged=true")
    loaded = metta_fast.load_policy(run, deterministic=True)
    assert list(loaded.spec.obs) == ["obs"]
    obs = np.linspace(-1, 1, 22, dtype=np.float32).reshape(2, 11)
    action = loaded.act(obs)
    loaded.restart()
    whole = {"obs": obs, "privileged": np.full((2, 36), np.nan, np.float32)}
    assert np.array_equal(loaded.act(whole), action)
    exported = export_policy(run, tmp_path / "hopper.pt")
    assert [one["name"] for one in exported.metadata["inputs"]] == ["obs"]
    assert [one["name"] for one in exported.metadata["outputs"]] == ["action", "params"]
    assert exported.metadata["check"]["rows"] > 0
