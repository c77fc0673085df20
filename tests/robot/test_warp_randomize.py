"""Domain randomisation on MuJoCo Warp: the worlds' own models beside mj_setConst, steps beside the CPU's, resumed.

On Warp's CPU device; a robot of three joints compiles for 20 s once (WARP_CACHE_PATH keeps it). On a GPU:

    python -m pytest -m gpu tests/robot/test_warp_randomize.py
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco")
import mujoco

from metta_fast.envs.robot.env import TASKS, RobotFactory
from metta_fast.envs.robot.looks import NAMES
from metta_fast.envs.robot.warp.engine import ROBOT, Engine
from metta_fast.envs.robot.warp.own_fields import OWN, own_names
from metta_fast.envs.robot.warp.physics import FLOATS
from tests.interpreter import gpu
from tests.robot.randomized import Draws, changed_look, changed_model
from tests.robot.test_looks import ALL as LOOKS
from tests.robot.test_randomize import ALL, MODEL
from tests.robot.test_warp import ROBOT as PENDULUM
from tests.robot.test_warp import beside, vector
from tests.vector.device_suite import attached, play, tape_for

DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=gpu)]
WORLDS, SEED = 3, 2**63 + 5
EPISODE = ROBOT.fields["episode"][1] // 4  # type: ignore[index]
"""Place of the episode's number in a world's state."""

MODELS = {
    "ball and tendon": """<mujoco><worldbody>
        <body pos="0 0 1"><joint type="ball" armature=".01"/><geom size=".1 .2" type="capsule"/>
          <body pos="0 0 .3"><joint name="h" axis="0 1 0"/><geom size=".05" pos=".1 0 0"/></body></body>
        <body pos="1 0 1"><joint name="s" type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
          <geom size=".1"/></body></worldbody>
        <tendon><fixed name="t" armature=".02"><joint joint="h" coef="1"/><joint joint="s" coef="-2"/></fixed></tendon>
        <actuator><muscle joint="h" lengthrange="0 1"/><position tendon="t" kp="3" forcerange="-1 2"/></actuator>
        </mujoco>""",
    "pair": """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
        <body pos="0 0 1"><freejoint/><geom name="ball" size=".1"/></body></worldbody>
        <contact><pair geom1="floor" geom2="ball" friction=".5 .6 .1 .1 .1"/></contact></mujoco>""",
}


def weighed(path: str, factory: Any, episodes: list[int]) -> dict[str, np.ndarray]:
    """The models' numbers of WORLDS worlds in these episodes, as weigh.h writes them; without Warp."""
    mjm = mujoco.MjModel.from_xml_path(path)
    record = factory.random
    own = {
        name: torch.full((WORLDS, *getattr(mjm, name).shape), float("nan"))
        for name in own_names(record)
        if getattr(mjm, name).size
    }
    arrays = {name: torch.zeros(1) for name in (*FLOATS, "body_mass", "init_qpos", "init_qvel")}
    physics: Any = types.SimpleNamespace(
        device=torch.device("cpu"),
        num_envs=WORLDS,
        mjm=mjm,
        simulation=types.SimpleNamespace(timestep=0.01),
        own=own,
        arrays=arrays | {"overflow": torch.zeros(WORLDS, dtype=torch.int32)},
    )
    engine = Engine(factory, physics, 4, 4 + WORLDS)
    engine.set_seed(SEED)
    engine.robots[:, EPISODE] = torch.tensor(episodes, dtype=torch.int32)
    engine.redraw()
    return {name: tensor.numpy() for name, tensor in own.items()}


def check_models(path: str, factory: Any, ranges: dict[str, Any]) -> None:
    episodes = [0, 1, 7]
    found = weighed(path, factory, episodes)
    for i, episode in enumerate(episodes):
        model = changed_model(path, Draws(SEED, 4 + i, episode), ranges)
        for name in OWN:
            expected = getattr(model, name)
            if expected.size:
                np.testing.assert_allclose(
                    found[name][i], expected, rtol=2e-4, atol=2e-4 * abs(expected).max() * 1e-3, err_msg=name
                )


@pytest.mark.parametrize("task", TASKS)
def test_worlds_models_are_those_that_mujoco_derives(task: str) -> None:
    factory = RobotFactory(task, randomize=MODEL)
    check_models(factory.model.path, factory, MODEL)


@pytest.mark.parametrize("name", MODELS)
def test_other_joints_tendons_and_pairs(name: str, tmp_path: Path) -> None:
    """On a model that no task has: the engine's rules are not called."""
    path = tmp_path / "own.xml"
    path.write_text(MODELS[name])
    check_models(str(path), RobotFactory("reacher", randomize=MODEL), MODEL)


@pytest.mark.parametrize("task", ["ant", "lift_cube"])
def test_worlds_look_as_they_are_drawn_to(task: str) -> None:
    factory = RobotFactory(task, randomize=LOOKS)
    path, episodes = factory.model.path, [0, 2, 5]
    found = weighed(path, factory, episodes)
    assert "cam_mat0" in found
    for i, episode in enumerate(episodes):
        model = mujoco.MjModel.from_xml_path(path)
        changed_look(model, Draws(SEED, 4 + i, episode), LOOKS)
        for name in NAMES:
            if name in found:
                np.testing.assert_allclose(
                    found[name][i].reshape(-1), getattr(model, name).reshape(-1), 1e-5, 1e-6, err_msg=name
                )


@pytest.mark.parametrize("device", DEVICES)
def test_steps_are_those_of_the_cpu(device: str) -> None:
    """With everything randomised, over two episodes."""
    pytest.importorskip("mujoco_warp")
    keys = {"randomize": {**ALL, "push": 0.2}, "max_steps": 5}
    rows = beside(vector(device, 3, **keys), PENDULUM, 15, 2e-4, **keys)
    assert sum(row["terminal"].sum() + row["truncation"].sum() for row in rows) >= 6


@pytest.mark.parametrize("device", DEVICES)
def test_without_ranges_nothing_is_changed(device: str) -> None:
    pytest.importorskip("mujoco_warp")
    plain, ones = (vector(device, 2, randomize=r) for r in (None, {"mass": 1, "friction": 1, "strength": 1}))
    assert plain.physics.own == {}
    assert set(ones.physics.own) < set(OWN)
    for vec in (plain, ones):
        attached(vec)
        vec.async_reset(3)
    for name, worlds in ones.physics.own.items():
        expected = np.broadcast_to(getattr(ones.physics.mjm, name), worlds.shape)
        np.testing.assert_allclose(worlds.cpu(), expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_saved_state_goes_on() -> None:
    """To the bit on Warp's CPU device: models are drawn again, late actions are saved."""
    pytest.importorskip("mujoco_warp")
    keys = {"randomize": ALL, "max_steps": 6}
    whole = vector("cpu", 3, **keys)
    b = attached(whole)
    whole.async_reset(1)
    tape = tape_for(whole.spec, 3, 20)
    play(whole, b, tape[:10])
    state = whole.snapshot()()
    after = play(whole, b, tape[10:])
    again = vector("cpu", 3, **keys)
    c = attached(again)
    again.load_state_dict(state)
    for ours, theirs in zip(play(again, c, tape[10:]), after, strict=True):
        for name in ours:
            assert torch.equal(ours[name], theirs[name]), name
