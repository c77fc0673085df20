"""Domain randomisation on the CPU: beside MuJoCo's own model changed by hand, off, resumed, drawn, refused."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")
import mujoco
from hypothesis import given, settings
from hypothesis import strategies as st

from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import new_rows
from metta_fast.envs.robot import env as env_module
from metta_fast.envs.robot.env import TASKS, RobotFactory, RobotSim
from metta_fast.resolve.compose import compose
from metta_fast.resolve.explain import explain_text
from metta_fast.resolve.resolve import resolve
from tests.robot.randomized import Draws, changed_model

MODEL = {"mass": [0.8, 1.2], "link_mass": [0.5, 2], "friction": [0.2, 3], "strength": [0.7, 1.3]}
ALL = {**MODEL, "latency": [0, 3], "noise": 0.05, "push": 1.5, "push_every": 3}
SEED = 2**63 + 12345


def actions(sim: RobotSim, steps: int) -> Any:
    low, high = np.array(sim.factory.spec.action.low), np.array(sim.factory.spec.action.high)
    return np.random.default_rng(0).uniform(low, high, (steps, len(low))).astype(np.float32)


@pytest.mark.parametrize(
    "task", ["ant", "humanoid", "hopper", "pusher", "inverted_double_pendulum", "swimmer"]
)
def test_steps_equal_those_of_the_model_changed_by_hand(task: str) -> None:
    """To the bit, over episodes, with another model in each."""
    ranges = MODEL | {"latency": [0, 3]}
    sim = RobotSim(task, seed=SEED, env_id=5, max_steps=9, randomize=ranges)
    sim.reset()
    seen = []
    data: Any = None
    for action in actions(sim, 40):
        if data is None:
            draws = Draws(SEED, 5, len(seen))
            model = changed_model(sim.factory.model.path, draws, ranges)
            seen.append(model.body_mass.sum())
            data, delay, late = mujoco.MjData(model), draws.latency((0, 3)), [0 * action] * 3
            data.qpos[:], data.qvel[:] = sim.batch.get_state(0)
            mujoco.mj_forward(model, data)
        _, _, terminal, truncation, _ = sim.step(action)
        late = [action, *late]
        data.ctrl[:] = late[delay]
        for _ in range(sim.factory.frame_skip):
            mujoco.mj_step(model, data)
        qpos, qvel = sim.batch.get_state(0)
        np.testing.assert_array_equal(qpos, data.qpos)
        np.testing.assert_array_equal(qvel, data.qvel)
        if terminal or truncation:
            data = None
            sim.step(action)
    assert len(set(seen)) == len(seen) >= 3


def test_noise_and_pushes_are_those_of_the_plain_draws() -> None:
    keys = {"seed": 7, "env_id": 2, "terminate_when_unhealthy": False}
    sim, plain = (RobotSim("ant", randomize=r, **keys) for r in (ALL_BUT_MODEL, None))
    draws, pushes = Draws(7, 2, 0), 0
    size = sim.factory.obs_size
    np.testing.assert_allclose(sim.reset() - plain.reset(), 0.05 * draws.noise(size, 0), rtol=1e-5, atol=1e-6)
    for step, action in enumerate(actions(sim, 20)):
        state = sim.batch.state_dict()  # with the solver's warm start
        pushed = draws.push(1.5, 3, step)
        if pushed is not None:
            pushes += 1
            state["physics"][0, 1 + 15 : 1 + 15 + 2] += pushed  # after time and qpos
        plain.batch.load_state_dict(state)
        obs, reward, *_ = sim.step(action)
        truth, same, *_ = plain.step(action)
        noise = 0.05 * draws.noise(size, step + 1)
        np.testing.assert_allclose(obs - truth, noise, rtol=1e-4, atol=1e-5)
        assert reward == pytest.approx(same, abs=1e-5)
    assert pushes > 2


ALL_BUT_MODEL = {"noise": 0.05, "push": 1.5, "push_every": 3}


@pytest.mark.parametrize("task", TASKS)
def test_ranges_of_one_change_nothing(task: str) -> None:
    """To the bit, and with each environment's own model: it is the model."""
    ones = dict.fromkeys(MODEL, 1) | {"latency": 0, "noise": 0, "push": None}
    sims = [RobotSim(task, seed=3, max_steps=15, randomize=r, privileged=True) for r in (None, ones)]
    np.testing.assert_array_equal(sims[0].reset(), sims[1].reset())
    for action in actions(sims[0], 40):
        (a, *flags), (b, *others) = (sim.step(action) for sim in sims)
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(sims[0].rows.obs["privileged"], sims[1].rows.obs["privileged"])
        assert flags == others


def batch(envs: int, first: int = 0, total: int = 0, **keys: Any) -> tuple[Any, Any]:
    factory = RobotFactory("hopper", max_steps=30, **keys)
    made = factory.make_batch(first, envs, total or envs)
    rows = new_rows(factory.spec, envs)
    made.bind(rows)
    return made, rows


def test_a_saved_state_goes_on_to_the_bit_and_does_not_depend_on_the_batch() -> None:
    whole, rows = batch(4, randomize=ALL)
    part, part_rows = batch(2, 1, 4, randomize=ALL)
    rng = np.random.default_rng(1)
    whole.reset(5, stagger=True)
    part.reset(5, stagger=True)
    for t in range(70):
        if t in (3, 34):
            state = pickle.loads(pickle.dumps(whole.state_dict()))
            kept = [leaf.copy() for leaf in rows.obs.values()]
            whole, rows = batch(4, randomize=ALL)
            whole.load_state_dict(state)
            for leaf, value in zip(rows.obs.values(), kept):
                leaf[:] = value
        rows.action[:] = rng.uniform(-1, 1, rows.action.shape)
        part_rows.action[:] = rows.action[1:3]
        whole.step()
        part.step()
        np.testing.assert_array_equal(rows.obs["obs"][1:3], part_rows.obs["obs"])
        np.testing.assert_array_equal(rows.reward[1:3], part_rows.reward)


def test_a_state_without_late_actions_is_refused_where_they_are_late() -> None:
    plain, _ = batch(2)
    plain.reset(0)
    late, _ = batch(2, randomize={"latency": 1})
    with pytest.raises(ValueError, match="it was saved with another robot, other options"):
        late.load_state_dict(plain.state_dict())


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    env=st.integers(0, 2**31),
    low=st.floats(0.01, 10),
    width=st.floats(0, 10),
)
def test_draws_are_uniform_and_independent(seed: int, env: int, low: float, width: float) -> None:
    """Of plain Python; the other tests tie these to the compiled ones."""
    ends = (low, low + width)
    found = np.array([[Draws(seed, env, t).factor(kind, ends, 3) for kind in (1, 2, 4)] for t in range(200)])
    assert (found >= np.float32(low)).all()
    assert (found <= np.float32(low + width)).all()
    if width > 0.01:
        unit = (found - low) / width
        assert (abs(unit.mean(0) - 0.5) < 5 / np.sqrt(12 * 200)).all()
        assert abs(np.corrcoef(unit.T)[np.triu_indices(3, 1)]).max() < 5 / np.sqrt(200)


def test_statistics_of_noise_and_latency() -> None:
    noise = np.concatenate([Draws(1, env, 0).noise(101, 4) for env in range(60)])
    assert abs(noise.mean()) < 5 / len(noise) ** 0.5
    assert noise.std() == pytest.approx(1, abs=0.05)
    found = [Draws(1, env, 0).latency((1, 3)) for env in range(300)]
    assert set(found) == {1, 2, 3}
    assert max(np.bincount(found)[1:]) < 140


def test_ranges_are_explained_and_survive_pickling() -> None:
    words = [f"env.params.randomize.{key}={value}" for key, value in ALL.items()]
    resolved = resolve(compose(["hardware=cpu", "env=ant", *(word.replace(" ", "") for word in words)]))
    text = " ".join(explain_text(resolved).split())
    for part in (
        "drawn for each episode: env.params.randomize.mass: masses and inertias of the whole robot × 0.8 … 1.2",
        "env.params.randomize.link_mass: mass and inertia of each body, by itself, × 0.5 … 2",
        "env.params.randomize.friction: sliding friction of every contact × 0.2 … 3",
        "env.params.randomize.strength: force of each actuator, by itself, × 0.7 … 1.3",
        "env.params.randomize.latency: actions take effect 0 … 3 steps late",
        "env.params.randomize.noise: normal noise with a standard deviation of 0.05 on every observed number",
        "env.params.randomize.push: pushes of up to 1.5 m/s in a horizontal direction, one in 3 steps on average",
    ):
        assert part in text
    again = pickle.loads(pickle.dumps(resolved.factory))
    assert again.randomize == resolved.factory.randomize
    assert RobotFactory("ant").differences() == RobotFactory("ant", randomize={}).differences() == []


BAD = [
    (
        {"mass": [1.2, 0.8]},
        r"randomize\.mass=\[1\.2, 0\.8\]: expected factors \[least, greatest\], 0\.01 … 100",
    ),
    ({"mass": 0}, r"randomize\.mass=0: expected factors"),
    ({"mass": -1}, "expected factors"),
    (
        {"friction": [float("nan"), 1]},
        r"randomize\.friction=\[nan, 1\]: expected factors \[least, greatest\], 0 …",
    ),
    ({"strength": [1, 2, 3]}, "expected factors"),
    ({"strength": "much"}, "expected factors"),
    ({"latency": [0.5, 2]}, r"randomize\.latency=\[0\.5, 2\]: expected whole steps"),
    ({"latency": [-1, 2]}, "expected whole steps"),
    ({"latency": 65}, "expected whole steps"),
    ({"noise": -0.1}, r"randomize\.noise=-0\.1: expected the standard deviation"),
    ({"noise": True}, "expected the standard deviation"),
    ({"push": float("inf")}, "expected the greatest speed"),
    ({"push": 1, "push_every": 0}, "expected a number of steps from 1 on"),
    ({"push_every": 10}, r"push_every=10 has no effect without env\.params\.randomize\.push"),
    ({"masse": 1}, r"randomize\.masse is not known; did you mean 'mass'\?"),
    (3, r"env\.params\.randomize=3: expected keys"),
    ([1], "expected keys"),
]


@pytest.mark.parametrize(("value", "message"), BAD)
def test_values_that_are_no_ranges_are_refused(value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        RobotFactory("hopper", randomize=value)


@pytest.mark.parametrize("task", ["reacher", "pusher"])
def test_a_root_that_cannot_move_is_not_pushed(task: str) -> None:
    with pytest.raises(UserError, match=r"push=0\.5: this robot's root cannot move"):
        RobotFactory(task, randomize={"push": 0.5})


def test_pushes_move_roots_that_can() -> None:
    axes = {task: RobotFactory(task).model.push_axes() for task in ("ant", "hopper", "swimmer")}
    assert axes == {
        "ant": [(0, 1.0, 0.0), (1, 0.0, 1.0)],
        "hopper": [(0, 1.0, 0.0)],
        "swimmer": [(0, 1.0, 0.0), (1, 0.0, 1.0)],
    }


@pytest.mark.parametrize("task", TASKS)
def test_all_that_mujoco_derives_from_masses_is_an_environments_own(task: str) -> None:
    text = (Path(env_module.__file__).parent / "own_model.h").read_text()
    own = set(re.findall(r"X\((\w+), ", text.partition("#define MF_OWN_ARRAYS(X)")[2].partition("/*")[0]))
    path = RobotFactory(task).model.path
    plain = mujoco.MjModel.from_xml_path(path)
    changed = changed_model(path, Draws(1, 2, 3), MODEL)
    arrays = {name for name in dir(plain) if isinstance(getattr(plain, name, None), np.ndarray)}
    differ = {name for name in arrays if not np.array_equal(getattr(plain, name), getattr(changed, name))}
    assert {"body_mass", "dof_invweight0", "geom_friction"} <= differ <= own
    assert own <= arrays | {"flexedge_invweight0"}
    assert changed.stat.meaninertia == plain.stat.meaninertia


def test_odd_actuators_are_not_scaled(tmp_path: Any) -> None:
    text = """<mujoco><worldbody><body><joint name="j" type="slide"/><geom size=".1"/></body></worldbody>
    <actuator><general name="odd" joint="j" gaintype="user"/></actuator></mujoco>"""
    own = tmp_path / "own.xml"
    own.write_text(text)
    from metta_fast.envs.robot._robot import RobotModel

    assert RobotModel(str(own)).odd_actuator() == "odd"
    assert RobotFactory("humanoid").model.odd_actuator() is None
