"""Random colours, lights and cameras (look.h): beside MuJoCo's model changed by hand, off, resumed, drawn, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")
import mujoco

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import new_rows
from metta_fast.envs.robot.camera.artist import Artist, Pictures
from metta_fast.envs.robot.camera.factory import CameraFactory
from metta_fast.envs.robot.env import RobotFactory
from metta_fast.envs.robot.looks import NAMES
from metta_fast.resolve.compose import compose
from metta_fast.resolve.explain import explain_text
from metta_fast.resolve.resolve import resolve
from tests.robot.randomized import Draws, changed_look

ALL = {"color": [0.5, 1.5], "light": [0.3, 1.7], "light_turn": 0.5, "camera": 0.05, "camera_turn": 0.2}
SEED = 2**63 + 12345
TABLE = """
<mujoco>
  <statistic extent="1"/>
  <visual><map znear="0.01" zfar="10"/><headlight ambient=".3 .3 .3" diffuse="0 0 0" specular="0 0 0"/></visual>
  <asset><material name="blue" rgba=".2 .3 .9 1"/></asset>
  <worldbody>
    <camera name="side" pos="0 -2 .4" xyaxes="1 0 0 0 .1 1" fovy="60"/>
    <light pos="1 -1 3" dir="-.3 .3 -1" directional="true" diffuse=".6 .5 .4" specular="0 0 0"/>
    <geom type="plane" size="3 3 1" rgba=".5 .6 .4 1"/>
    <body name="cart">
      <joint name="slider" type="slide" axis="1 0 0" range="-1 1"/>
      <geom type="box" size=".3 .2 .1" rgba=".9 .2 .1 1" pos="0 0 .2"/>
      <body name="pole">
        <joint name="hinge" axis="0 1 0"/><geom type="box" size=".06 .06 .3" pos="0 0 .5" material="blue"/>
        <camera name="com" mode="trackcom" pos="0 -2 1" xyaxes="1 0 0 0 .3 1"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slider" gear="300" ctrlrange="-3 3" ctrllimited="true"/></actuator>
</mujoco>
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "table.xml"
    path.write_text(TABLE)
    try:
        Artist(Pictures(str(path), ("side",), 16), 1, 1).close()
    except UserError as error:
        pytest.skip(str(error))
    return str(path)


def factory(table: str, **keys: Any) -> CameraFactory:
    robot = RobotFactory("inverted_pendulum", xml_file=table, **{"max_steps": 3} | keys)
    return CameraFactory(robot, ("side", "com"), size=32, kind="rgbd", far=4.0)


def begun(made: CameraFactory, envs: int, first: int = 0, total: int = 0) -> tuple[Any, Any]:
    batch, rows = made.make_batch(first, envs, total or first + envs), new_rows(made.spec, envs)
    batch.bind(rows)
    batch.reset(SEED)
    return batch, rows


def arrays(row: Array, model: Any) -> dict[str, Array]:
    """An environment's looks by their names."""
    found, first = {}, 0
    for name in NAMES:
        size = getattr(model, name).size
        if size:
            found[name] = row[first : first + size]
            first += size
    assert first == len(row)
    return found


@pytest.mark.parametrize("robot", ["lift_cube", "ant", "table"])
def test_looks_are_those_of_the_model_changed_by_hand(table: str, robot: str) -> None:
    """Of two environments in three episodes each; what MuJoCo derives of them, too."""
    own = {"task": robot} if robot != "table" else {"task": "inverted_pendulum", "xml_file": table}
    path = RobotFactory(**own).model.path
    names = tuple(RobotFactory(**own).model.cameras)
    made = CameraFactory(RobotFactory(**own, max_steps=1, randomize=ALL), names, size=16)
    batch, _ = begun(made, 2, 5)
    for episode in range(3):
        for env in range(2):
            model = mujoco.MjModel.from_xml_path(path)
            changed_look(model, Draws(SEED, 5 + env, episode), ALL)
            for name, found in arrays(batch.artist.looks[env], model).items():
                expected = getattr(model, name).reshape(-1)
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=name)
        batch.step()
        batch.step()
    batch.close()


def test_pictures_show_them(table: str, tmp_path: Path) -> None:
    """As MuJoCo draws a file with these colours, this light and these cameras."""
    made = factory(table, randomize=ALL)
    batch, rows = begun(made, 2)
    for env in range(2):
        model = mujoco.MjModel.from_xml_path(table)
        changed_look(model, Draws(SEED, env, 0), ALL)

        def words(values: Any) -> str:
            return " ".join(map(repr, np.asarray(values, float).tolist()))

        text = TABLE
        for place, value in (
            ('dir="-.3 .3 -1"', f'dir="{words(model.light_dir[0])}"'),
            ('diffuse=".6 .5 .4"', f'diffuse="{words(model.light_diffuse[0])}"'),
            ('rgba=".5 .6 .4 1"', f'rgba="{words(model.geom_rgba[0])}"'),
            ('rgba=".9 .2 .1 1"', f'rgba="{words(model.geom_rgba[1])}"'),
            ('rgba=".2 .3 .9 1"', f'rgba="{words(model.mat_rgba[0])}"'),
            ('pos="0 -2 .4"', f'pos="{words(model.cam_pos[0])}"'),
            ('xyaxes="1 0 0 0 .1 1"', f'quat="{words(model.cam_quat[0])}"'),
            ('pos="0 -2 1"', f'pos="{words(model.cam_pos[1])}"'),
            ('xyaxes="1 0 0 0 .3 1"', f'quat="{words(model.cam_quat[1])}"'),
        ):
            assert text.count(place) == 1
            text = text.replace(place, value)
        path = tmp_path / f"{env}.xml"
        path.write_text(text)
        what = made.what._replace(model=str(path))
        with Artist(what, 1, len(batch.physics(0))) as drawn:
            drawn.states[0] = batch.physics(env)
            drawn.draw()
            for camera, leaf in enumerate(made.leaves):
                ours, theirs = rows.obs[leaf][env].astype(int), drawn.pictures[0, camera].astype(int)
                assert np.abs(ours - theirs).mean() < 0.3, leaf
                assert (np.abs(ours - theirs) > 3).any(-1).mean() < 0.01, leaf
    for leaf in made.leaves:
        assert np.abs(rows.obs[leaf][0].astype(int) - rows.obs[leaf][1]).mean() > 3
    batch.close()


def test_without_ranges_pictures_are_the_same_bytes(table: str) -> None:
    """Also beside ranges that change the physics alone; and ranges of nothing change nothing."""
    nothing = {"color": 1, "light": 1, "light_turn": 0, "camera": 0, "camera_turn": 0}
    found = []
    for randomize in (None, {"push": 0.0}, nothing):
        batch, rows = begun(factory(table, randomize=randomize), 2)
        seen = []
        for _ in range(6):
            seen += [rows.obs[leaf].copy() for leaf in ("image_side", "image_com")]
            rows.action[:] = 1.5
            batch.step()
        assert batch.artist.looks.size == (0 if randomize != nothing else 2 * batch.artist.looks.shape[1])
        batch.close()
        found.append(np.stack(seen))
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0].astype(int) - found[2]).max() <= 1


def test_an_episodes_look_is_its_environments_own(table: str) -> None:
    """Whatever the batch; it stays until the last row, and another follows."""
    made = factory(table, randomize={"color": [0.2, 1.8]})
    whole, rows = begun(made, 3)
    part, part_rows = begun(made, 1, 1, 3)
    looks = [whole.artist.looks.copy()]
    for _ in range(5):
        for batch, its in ((whole, rows), (part, part_rows)):
            its.action[:] = 0
            batch.step()
        for leaf in made.leaves:
            np.testing.assert_array_equal(rows.obs[leaf][1], part_rows.obs[leaf][0])
        looks.append(whole.artist.looks.copy())
    assert (looks[0] == looks[3]).all()
    assert (looks[3] != looks[4]).any(1).all()
    whole.close()
    part.close()


def test_a_saved_state_goes_on_with_its_look(table: str) -> None:
    made = factory(table, randomize=ALL)
    whole, rows = begun(made, 2)
    for _ in range(5):
        whole.step()
    again, others = begun(made, 2)
    again.load_state_dict(whole.state_dict())
    for _ in range(4):
        whole.step()
        again.step()
        for leaf in made.leaves:
            np.testing.assert_array_equal(rows.obs[leaf], others.obs[leaf])
    whole.close()
    again.close()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("env=ant env.params.randomize.color=[0.5,1.5]", "changes pictures alone, and there are none"),
        ("env=ant env.params.randomize.camera=0.1", "env.image.cameras"),
        ("env=lift_cube_wrist env.params.randomize.color=[-1,2]", "expected factors"),
        ("env=lift_cube_wrist env.params.randomize.camera=-0.1", "metres along each axis"),
        ("env=lift_cube_wrist env.params.randomize.camera=[0,1]", "metres along each axis"),
        ("env=lift_cube_wrist env.params.randomize.camera_turn=2", "0 … 1.5"),
        ("env=lift_cube_wrist env.params.randomize.light_turn=nan", "0 … 1.5"),
        ("env=lift_cube_wrist env.params.randomize.colour=[0,1]", "did you mean 'color'"),
        (
            "env=lift_cube_wrist env.image.kind=depth env.params.randomize.light=[0,1]",
            "a depth has no colours",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(words: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        resolve(compose(["hardware=cpu", *words.split()]))


def test_a_model_without_lights_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dark.xml"
    start = TABLE.index("<light")
    path.write_text(TABLE[:start] + TABLE[TABLE.index("\n", start) :])
    with pytest.raises(UserError, match="has no light"):
        RobotFactory("inverted_pendulum", xml_file=str(path), randomize={"light": [0, 1]})


def test_explain_says_what_is_drawn() -> None:
    words = ["env.params.randomize.color=[0.5,1.5]", "env.params.randomize.camera=0.01"]
    text = explain_text(resolve(compose(["hardware=cpu", "env=lift_cube_wrist", *words])))
    assert "every geom and material" in text
    assert "each camera moved by up to 0.01 m along each axis" in text
