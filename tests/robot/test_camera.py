"""Tests pictures as observations of robots: their content, their rows, who reads them, and what is refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("gymnasium")

from metta_fast import make_vector
from metta_fast.config.keys import PolicyConfig
from metta_fast.config.policy_inputs import reads
from metta_fast.contracts.env import Array, EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import new_rows
from metta_fast.envs.robot.camera import artist
from metta_fast.envs.robot.camera.artist import Artist, Pictures
from metta_fast.envs.robot.camera.factory import CameraFactory, beside
from metta_fast.envs.robot.env import RobotFactory
from metta_fast.machine.hardware import GIB, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from tests.robot.red import red

SCENE = """
<mujoco>
  <statistic extent="1"/>
  <visual><map znear="0.01" zfar="10"/><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
  <worldbody>
    <camera name="down" pos="0 0 2" xyaxes="1 0 0 0 1 0" fovy="45"/>
    <geom type="plane" size="5 5 1" rgba="0 0 0 1"/>
    <geom type="box" size="0.2 0.2 0.25" pos="-0.4 0.4 0.25" rgba="1 0 0 1"/>
    <geom type="box" size="0.2 0.2 0.5" pos="0.4 0.4 0.5" rgba="0 0 1 1"/>
    <geom type="box" size="0.2 0.2 0.25" pos="0.4 -0.4 0.25" rgba="0 1 0 1"/>
    <body name="moved" pos="0 0 5"><joint type="slide" axis="0 0 1"/><geom size="0.01" rgba="1 1 1 1"/></body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module", autouse=True)
def drawing() -> None:
    try:
        Artist(Pictures(str(lift().model.path), ("wrist",), 16), 1, state_size()).close()
    except UserError as error:
        pytest.skip(str(error))


def lift(**keys: Any) -> RobotFactory:
    return RobotFactory("lift_cube", **keys)


def state_size() -> int:
    return len(lift().make_batch(0, 1, 1).physics(0))


def test_a_scene_is_seen_the_right_way_round(tmp_path: Path) -> None:
    """Colours at their places, and depth in metres along the view."""
    import mujoco

    (tmp_path / "scene.xml").write_text(SCENE)
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "scene.xml"))
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_INTEGRATION)
    with Artist(Pictures(str(tmp_path / "scene.xml"), ("down",), 64, "rgbd", 4.0), 2, size) as drawn:
        drawn.draw()
        picture = drawn.pictures[1, 0]
    # the view is 2·tan(22.5°)·(2 − height) wide; a box's middle is 0.4 from the axis
    across = {height: round(0.4 / (2 * np.tan(np.pi / 8) * (2 - height)) * 64) for height in (0.5, 1.0)}
    seen = {
        (-1, 1): (0, 0.5),
        (1, 1): (2, 1.0),
        (1, -1): (1, 0.5),
    }
    for (x, y), (channel, height) in seen.items():
        at = picture[32 - y * across[height], 32 + x * across[height]]
        assert at[:3].argmax() == channel
        assert at[channel] > 100
        assert at[3] == pytest.approx((2 - height) / 4 * 255, abs=1)
    assert picture[32, 5, :3].max() < 60
    assert picture[32, 5, 3] == pytest.approx(127.5, abs=1)


def test_what_is_far_is_the_greatest_depth() -> None:
    with Artist(Pictures(lift().model.path, ("wrist",), 32, "depth", 0.1), 1, state_size()) as drawn:
        drawn.draw()
        assert (drawn.pictures[0, 0, :12] == 255).all()  # the table is 20 cm away
        assert (drawn.pictures < 255).any()  # the fingers are nearer


def test_the_wrist_sees_every_cube_at_its_start() -> None:
    """Anywhere in the square, with any yaw and any first pose of the arm."""
    factory = CameraFactory(lift(max_steps=1), ("wrist",), size=64)
    batch, rows = factory.make_batch(0, 256, 256), new_rows(factory.spec, 256)
    batch.bind(rows)
    batch.reset(0)
    pixels = red(rows.obs["image"]).sum((1, 2))
    batch.close()
    assert pixels.min() >= 12, np.sort(pixels)[:5]


def rows_of(factory: CameraFactory, steps: int, **how: Any) -> list[dict[str, Array]]:
    """Returns the observations of 5 environments with the same actions, however they are stepped."""
    low, high = np.array(factory.spec.action.low), np.array(factory.spec.action.high)
    actions = np.random.default_rng(0).uniform(low, high, (steps, 5, 7)).astype(np.float32)
    found = []
    with make_vector(factory, 5, **how) as vec:
        vec.async_reset(7)
        for action in actions:
            block = vec.recv()
            found.append({name: leaf.copy() for name, leaf in block.rows.obs.items()})
            vec.send(block, action)
        vec.recv()
    return found


def test_pictures_are_of_their_own_rows() -> None:
    """The same from threads as from a batch of one environment each, over ends of episodes; each is of its state."""
    factory = CameraFactory(lift(max_steps=4), ("wrist", "fixed"), size=24, kind="rgbd", state="critic")
    assert factory.spec.obs["image_wrist"].shape == (24, 24, 4)
    rows = rows_of(factory, 7, backend="threads", num_threads=2)
    low, high = np.array(factory.spec.action.low), np.array(factory.spec.action.high)
    actions = np.random.default_rng(0).uniform(low, high, (7, 5, 7)).astype(np.float32)
    for env in (0, 4):
        batch, own = factory.make_batch(env, 1, 5), new_rows(factory.spec, 1)
        batch.bind(own)
        batch.reset(7)
        with Artist(factory.what, 1, state_size()) as drawn:
            for t, row in enumerate(rows):
                drawn.states[0] = batch.physics(0)
                drawn.draw()
                for camera, name in enumerate(factory.leaves):
                    np.testing.assert_array_equal(own.obs[name][0], row[name][env], err_msg=f"row {t}")
                    np.testing.assert_array_equal(own.obs[name][0], drawn.pictures[0, camera])
                np.testing.assert_array_equal(own.obs["joints"][0], row["joints"][env])
                np.testing.assert_array_equal(
                    own.obs["joints"][0], batch.inner.get_state(0)[0][:8].astype("f4")
                )
                own.action[0] = actions[t, env]
                batch.step()
        batch.close()


def test_a_resumed_batch_goes_on_with_the_same_pictures() -> None:
    factory = CameraFactory(lift(), ("wrist",), size=24)
    first, again = factory.make_batch(0, 2, 2), factory.make_batch(0, 2, 2)
    rows, other = new_rows(factory.spec, 2), new_rows(factory.spec, 2)
    first.bind(rows)
    again.bind(other)
    first.reset(3)
    rows.action[:] = 0.3
    first.step()
    again.reset(9)
    again.load_state_dict(first.state_dict())
    other.action[:] = rows.action
    first.step()
    again.step()
    for name in rows.obs:
        np.testing.assert_array_equal(rows.obs[name], other.obs[name])
    first.close()
    again.close()


def test_the_actor_sees_pictures_and_joints_alone() -> None:
    spec = CameraFactory(lift(), ("wrist",), state="critic").spec
    assert {name: leaf.shape for name, leaf in spec.obs.items()} == {
        "image": (64, 64, 3),
        "joints": (8,),
        "obs": (40,),
    }
    actor, critic = reads(PolicyConfig(shared=False, critic_obs=["obs"]), spec)
    assert (actor, critic) == (("image", "joints"), ("obs",))
    both = CameraFactory(lift(), ("wrist",)).spec
    assert reads(PolicyConfig(), both) == (("image", "obs"), ("image", "obs"))


def test_the_memory_of_processes_that_draw_is_estimated() -> None:
    """Two threads for each of two blocks; a single one where there is a single environment."""
    words = ["hardware=cpu", "env=lift_cube_wrist", "trainer.batch_size=2048"]
    for more, processes in (
        (["vector.backend=threads"], 4),
        (["env.num_envs=1", "vector.async_factor=1"], 1),
    ):
        machine = Machine(2, 2, 64 * GIB)
        parts = resolve(compose([*words, *more], machine=machine), machine=machine).memory
        assert {part.name: part.bytes for part in parts}["drawing"] == processes * (150 << 20)


def test_any_robot_of_ours_can_be_seen() -> None:
    factory = CameraFactory(RobotFactory("ant"), ("track",), size=32, state="critic")
    batch, rows = factory.make_batch(0, 1, 1), new_rows(factory.spec, 1)
    batch.bind(rows)
    batch.reset(0)
    batch.close()
    assert rows.obs["image"].std() > 5
    assert rows.obs["joints"].shape == (1, 8)


def test_an_unknown_camera_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match=r"no camera 'wirst'; did you mean 'wrist'\? it has fixed, wrist"):
        CameraFactory(lift(), ("wirst",))
    with pytest.raises(UserError, match="it has none"):
        CameraFactory(RobotFactory("inverted_pendulum"), ("track",))
    with pytest.raises(UserError, match="different cameras"):
        CameraFactory(lift(), ("wrist", "wrist"))


def test_without_opengl_the_packages_are_named() -> None:
    with pytest.raises(UserError, match=r"(?s)nothing: .*apt-get install libegl1.*libosmesa6"):
        Artist(Pictures(lift().model.path, ("wrist",)), 1, state_size(), libraries=("nothing",))


def test_a_process_that_dies_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = CameraFactory(lift(), ("wrist",), size=16)
    batch, rows = factory.make_batch(0, 1, 1), new_rows(factory.spec, 1)
    batch.bind(rows)
    batch.reset(0)
    os.kill(batch.artist._process.pid, signal.SIGKILL)
    with pytest.raises(EnvError, match="the process that draws pictures"):
        batch.step()
    batch.close()
    assert artist._works


def test_the_process_ends_with_its_batch() -> None:
    drawn = Artist(Pictures(lift().model.path, ("wrist",), 16), 1, state_size())
    process = drawn._process
    del drawn
    assert process.poll() is not None


def test_a_film_shows_the_robot_and_what_it_sees() -> None:
    image, pictures = np.full((60, 80, 3), 7, np.uint8), np.zeros((2, 10, 10, 1), np.uint8)
    pictures[1, 0, 0] = 200
    film = beside(image, pictures)
    assert film.shape == (60, 110, 3)
    assert (film[:, :80] == 7).all()
    assert (film[30:33, 80:83] == 200).all()
    assert film[:, 80:].sum() == 3 * 9 * 200
    assert beside(image, np.ones((1, 100, 100, 4), np.uint8)).shape == (100, 180, 3)
