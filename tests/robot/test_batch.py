"""Compares robot stepping with Gymnasium's v5, and tests the guarantees of `EnvBatch`.

test_oracle.py compares the rules on Gymnasium's own physics; here the physics is ours too.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")
gymnasium = pytest.importorskip("gymnasium")

from metta_fast.contracts.env import Array, Rows  # noqa: E402
from metta_fast.contracts.errors import UserError  # noqa: E402
from metta_fast.contracts.slab import new_rows  # noqa: E402
from metta_fast.envs.robot.env import TASKS, RobotFactory, RobotSim, find_task, model_path  # noqa: E402
from metta_fast.vector import make_vector  # noqa: E402
from tests.robot.test_oracle import OPTIONS, flat, same_obs, task_of  # noqa: E402
from tests.vector.suite import BACKENDS, assert_same, play  # noqa: E402
from tests.vector.suite import flat as flat_rows  # noqa: E402

EPISODES, STEPS = 2, 60
ROOT = Path(__file__).resolve().parents[2]
CASES = [(name, options) for name, sets in OPTIONS.items() for options in ({}, *sets)]


def make_rows(factory: RobotFactory, n: int) -> Rows:
    return new_rows(factory.spec, n)


def tape(factory: RobotFactory, length: int, seed: int = 0, envs: int = 1) -> Array:
    spec = factory.spec
    shape = length, envs, spec.action.width
    return np.random.default_rng(seed).uniform(spec.action.low, spec.action.high, shape).astype(np.float32)


def batch_of(factory: RobotFactory, n: int, first: int = 0) -> tuple[Any, Rows]:
    batch, rows = factory.make_batch(first, n, first + n), make_rows(factory, n)
    batch.bind(rows)
    return batch, rows


def run(batch: Any, rows: Rows, actions: Array) -> list[dict[str, Array]]:
    out = []
    for action in actions:
        rows.action[:] = action
        batch.step()
        out.append(flat_rows(rows))
    return out


def test_every_task_has_its_oracle() -> None:
    assert {name for name in TASKS if find_task(name).gymnasium_id} == set(OPTIONS)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_steps_are_gymnasiums(name: str, options: dict[str, Any]) -> None:
    env = gymnasium.make(task_of(name).gymnasium_id, **options)
    env.action_space.seed(1)
    sim = RobotSim(name, **options)
    assert env.action_space.shape == (sim.factory.spec.action.width,)
    np.testing.assert_array_equal(env.action_space.low, np.float32(sim.factory.spec.action.low))
    np.testing.assert_array_equal(env.action_space.high, np.float32(sim.factory.spec.action.high))
    for episode in range(EPISODES):
        theirs, _ = env.reset(seed=episode)
        data = env.unwrapped.data
        same_obs(name, sim.set_state(data.qpos, data.qvel), theirs)
        for _ in range(STEPS):
            action = env.action_space.sample()
            theirs, their_reward, their_terminal, their_truncation, their_info = env.step(action)
            obs, reward, terminal, truncation, info = sim.step(action)
            same_obs(name, obs, theirs)
            assert (reward, terminal, truncation) == (their_reward, their_terminal, their_truncation)
            assert info == flat(their_info)
            np.testing.assert_array_equal(sim.rows.obs["obs"][0], obs.astype(np.float32))
            assert sim.rows.reward[0] == np.float32(reward)
            if terminal or truncation:
                assert not sim.rows.mask[0]
                break


def test_a_body_may_be_given_by_its_name() -> None:
    number = RobotSim("ant").factory.model.body("front_left_leg")
    for options in ({"main_body": "front_left_leg"}, {"main_body": number}):
        env = gymnasium.make("Ant-v5", **options)
        env.reset(seed=0)
        sim = RobotSim("ant", **options)
        sim.set_state(env.unwrapped.data.qpos, env.unwrapped.data.qvel)
        action = np.full(8, 0.5, np.float32)
        assert sim.step(action)[4] == flat(env.step(action)[4])


def test_the_time_limit_comes_at_exactly_max_steps() -> None:
    for terminal in (False, True):
        sim = RobotSim("half_cheetah", max_steps=5, limit_is_terminal=terminal)
        sim.reset()
        zero = np.zeros(6, np.float32)
        ends = [sim.step(zero)[2:4] for _ in range(4)]
        assert not np.any(ends)
        last, *_, info = sim.step(zero)
        assert (sim.rows.terminal[0], sim.rows.truncation[0], sim.rows.mask[0]) == (
            terminal,
            not terminal,
            False,
        )
        stats = dict(zip(sim.factory.spec.stats, sim.rows.stats[0].tolist()))
        assert stats["x_position"] == np.float32(info["x_position"])
        assert stats["unstable"] == 0
        first = sim.step(zero)[0]  # the call after it resets
        assert (first != last).any()
        assert sim.rows.mask[0]
        assert sim.rows.reset[0]
        assert not sim.rows.terminal[0]
        assert not sim.rows.truncation[0]
        assert sim.rows.reward[0] == 0
        sim.step(zero)
        assert not sim.rows.reset[0]


def test_statistics_add_up_rewards() -> None:
    sim = RobotSim("ant", max_steps=20, terminate_when_unhealthy=False)
    sim.reset()
    steps = [sim.step(action) for action in tape(sim.factory, 20, envs=1)[:, 0]]
    stats = dict(zip(sim.factory.spec.stats, sim.rows.stats[0].tolist()))
    for key in ("reward_forward", "reward_ctrl", "reward_contact", "reward_survive"):
        assert stats[key] == pytest.approx(sum(step[4][key] for step in steps), rel=1e-6)
    assert sum(value for key, value in stats.items() if key.startswith("reward")) == pytest.approx(
        sum(step[1] for step in steps), rel=1e-5
    )


@pytest.mark.parametrize("name", ["hopper", "humanoid"])
def test_a_resumed_batch_goes_on_bit_for_bit(name: str) -> None:
    factory = RobotFactory(name, max_steps=40)
    actions = tape(factory, 90, envs=5)
    batch, rows = batch_of(factory, 5)
    batch.reset(3, stagger=True)
    run(batch, rows, actions[:50])
    saved, obs = pickle.dumps(batch.state_dict()), rows.obs["obs"].copy()
    expected = run(batch, rows, actions[50:])
    assert any(step["truncation"].any() or step["terminal"].any() for step in expected)
    other, other_rows = batch_of(pickle.loads(pickle.dumps(factory)), 5)
    other.reset(99)
    run(other, other_rows, actions[:7])  # another past, with a warm start of its own
    other.load_state_dict(pickle.loads(saved))
    other_rows.obs["obs"][:] = obs
    for ours, theirs in zip(run(other, other_rows, actions[50:]), expected):
        assert_same(ours, theirs)


def test_state_of_another_robot_is_refused() -> None:
    hopper, _ = batch_of(RobotFactory("hopper"), 2)
    hopper.reset(0)
    ant, _ = batch_of(RobotFactory("ant"), 2)
    with pytest.raises(ValueError, match="another robot"):
        ant.load_state_dict(hopper.state_dict())


def test_a_reset_clears_warm_start_controls_and_forces() -> None:
    """An episode's course depends on its start alone, whatever was before it."""
    for name in ("humanoid", "ant"):
        fresh, used = RobotSim(name), RobotSim(name)
        actions = tape(fresh.factory, 30, envs=1)[:, 0]
        fresh.reset()
        start = fresh.batch.get_state(0)
        used.reset()
        for action in actions:
            used.step(action)
        np.testing.assert_array_equal(fresh.set_state(*start), used.set_state(*start))
        for action in actions[:10]:
            ours, theirs = fresh.step(action), used.step(action)
            np.testing.assert_array_equal(ours[0], theirs[0])
            assert ours[1] == theirs[1]


def test_envs_differ_and_depend_on_seed_and_id_alone() -> None:
    factory = RobotFactory("hopper")
    whole, rows = batch_of(factory, 6)
    whole.reset(5)
    starts = rows.obs["obs"].copy()
    assert len(np.unique(starts, axis=0)) == 6
    part, part_rows = batch_of(factory, 3, first=2)
    part.reset(5)
    np.testing.assert_array_equal(part_rows.obs["obs"], starts[2:5])
    whole.reset(6)
    assert (rows.obs["obs"] != starts).any(axis=1).all()


def test_every_backend_gives_the_same_bytes() -> None:
    factory = RobotFactory("hopper", max_steps=25)
    actions = tape(factory, 40, envs=6)
    results = {}
    for name, keys in BACKENDS.items():
        given = {"num_workers": 1, "num_threads": 1, **keys}
        vec = make_vector(factory, 6, num_blocks=2, worker_timeout_s=60.0, **given)
        try:
            vec.async_reset(4, stagger=True)
            results[name] = play(vec, actions)
        finally:
            vec.close()
    first = results.pop("serial")
    assert first["terminal"].any()
    assert first["truncation"].any()
    for other in results.values():
        assert_same(first, other)


UNSTABLE = """
import numpy as np
from metta_fast.envs.robot.env import RobotSim
sim = RobotSim("half_cheetah", env_id=7, max_steps=50)
obs = sim.reset()
qpos, qvel = sim.batch.get_state(0)
for round in range(2):
    sim.set_state(qpos, np.full_like(qvel, 1e9))
    for _ in range(50):
        before = sim.rows.obs["obs"].copy()
        obs, reward, terminal, truncation, info = sim.step(np.zeros(6, np.float32))
        if terminal:
            break
    assert terminal and not truncation and reward == 0 and not sim.rows.mask[0]
    assert np.isfinite(obs).all() and (sim.rows.obs["obs"] == before).all()
    assert sim.rows.stats[0, -1] == 1 and np.isfinite(sim.rows.stats).all()
    sim.step(np.zeros(6, np.float32))
    for _ in range(50):  # the next episode is an ordinary one
        assert not terminal or sim.rows.reset[0]
        obs, reward, terminal, truncation, info = sim.step(np.zeros(6, np.float32))
        assert np.isfinite(obs).all() and not terminal
    assert truncation and sim.rows.stats[0, -1] == 0
"""


def test_an_unstable_simulation_ends_its_episode_and_is_told_once(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNSTABLE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("became unstable") == 1
    assert "environment 7 (half_cheetah)" in done.stderr
    assert not list(tmp_path.iterdir()), "MuJoCo wrote its log file"


def test_an_action_that_is_not_finite_is_refused() -> None:
    sim = RobotSim("hopper")
    sim.reset()
    with pytest.raises(ValueError, match="not finite"):
        sim.step(np.array([0, np.nan, 0], np.float32))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"task": "half_cheeta"}, "did you mean 'half_cheetah'"),
        ({"task": "ant", "healthy_rewards": 1}, "did you mean 'healthy_reward'"),
        ({"max_steps": 0}, "max_steps=0"),
        ({"frame_skip": 1.5}, "frame_skip=1.5"),
        ({"xml_file": "no_such.xml"}, "there is no file"),
        ({"xml_file": "hopper.xml"}, "nq is 6, the task ant needs at least 15"),
        ({"main_body": "tail"}, "there is no body 'tail'"),
        ({"main_body": 99}, "expected the number of a body"),
        ({"main_body": 1.5}, "expected the number of a body"),
    ],
)
def test_a_wrong_configuration_is_named(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        RobotFactory(**keys)


def test_warnings_about_a_model_are_told_of_ones_own_alone(tmp_path: Any, caplog: Any) -> None:
    own = tmp_path / "robot.xml"
    own.write_bytes(model_path("half_cheetah.xml").read_bytes())
    RobotFactory("half_cheetah")
    assert caplog.text == ""
    factory = RobotFactory("half_cheetah", xml_file=str(own))
    pickle.loads(pickle.dumps(factory))
    assert caplog.text.count(f"{own}: compiler attribute 'settotalmass' is deprecated") == 1


def test_a_broken_model_is_told_with_mujocos_words(tmp_path: Any) -> None:
    file = tmp_path / "robot.xml"
    file.write_text("<mujoco><worldbody><body><geom type='cube'/></body></worldbody></mujoco>")
    with pytest.raises(UserError, match="MuJoCo cannot load this model"):
        RobotFactory("ant", xml_file=str(file))
