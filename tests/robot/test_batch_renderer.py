"""Pictures of robots on MuJoCo Warp (envs/robot/warp/draw) beside MuJoCo's OpenGL, and their bytes beside Warp's own.

On Warp's CPU device the renderer compiles for 8 s once (WARP_CACHE_PATH keeps it). On a GPU:

    python -m pytest -m gpu tests/robot/test_batch_renderer.py
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco")
pytest.importorskip("mujoco_warp")

import mujoco
import mujoco_warp
import warp

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import new_rows
from metta_fast.envs.robot.camera.factory import PROCESS_BYTES, CameraFactory
from metta_fast.envs.robot.env import RobotFactory
from metta_fast.envs.robot.warp.compile.modules import needed
from metta_fast.envs.robot.warp.draw.context import Drawn
from metta_fast.envs.robot.warp.simulation import How, Simulation, how_from
from metta_fast.envs.robot.warp.vector import WarpVector
from metta_fast.machine.hardware import allowed_cores
from metta_fast.runtime.cuda_graph import Graph
from tests.interpreter import gpu
from tests.robot.red import red
from tests.robot.same_scene import Batched
from tests.vector.device_suite import HORIZON, attached, check, play

MODEL = """
<mujoco>
  <option timestep="0.02"/>
  <statistic extent="1"/>
  <visual><map znear="0.01" zfar="10"/><headlight ambient=".3 .3 .3" diffuse=".5 .5 .5" specular="0 0 0"/></visual>
  <worldbody>
    <camera name="side" pos="0 -2 .3" xyaxes="1 0 0 0 0 1" fovy="60"/>
    <light pos="1 -1 3" dir="-.3 .3 -1" directional="true" diffuse=".4 .4 .4" specular="0 0 0"/>
    <body name="cart">
      <joint name="slider" type="slide" axis="1 0 0" range="-1 1"/>
      <geom type="box" size=".3 .2 .1" rgba=".9 .1 .05 1"/>
      <body name="pole">
        <joint name="hinge" axis="0 1 0"/><geom type="box" size=".06 .06 .3" pos="0 0 .3" rgba=".1 .7 .2 1"/>
        <camera name="pole" pos="0 -.5 .6" xyaxes="1 0 0 0 .6 .8" fovy="80"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slider" gear="300" ctrlrange="-3 3" ctrllimited="true"/></actuator>
</mujoco>
"""
"""Two boxes: OpenGL draws the same, but for pixels at an edge."""
DEVICES = [pytest.param("cpu"), pytest.param("cuda", marks=gpu)]
SIZE, FAR, EDGES = 16, 4.0, 0.015
"""EDGES: share of pixels that may be of another thing."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "pendulum.xml"
    path.write_text(MODEL)
    return str(path)


def cameras(model: str, *, kind: str = "rgbd", renderer: str = "auto", **keys: Any) -> CameraFactory:
    robot = RobotFactory("inverted_pendulum", xml_file=model, njmax=16, nconmax=4, **{"max_steps": 3} | keys)
    return CameraFactory(
        robot, ("side", "pole"), size=SIZE, kind=kind, far=FAR, state="critic", renderer=renderer
    )


def vector(
    factory: CameraFactory, envs: int, device: str = "cpu", first: int = 0, total: int = 0
) -> WarpVector:
    where = torch.device(device, 0) if device == "cuda" else torch.device(device)
    vec = factory.make_device_vector(envs, where, first, total or first + envs)
    assert isinstance(vec, WarpVector)
    return vec


def differs(one: Array, other: Array) -> float:
    """Returns the share of pixels that are of another thing."""
    return float((np.abs(one.astype(int) - other.astype(int)) > 12).any(-1).mean())


LOOKS = {"color": [0.6, 1.1], "light": [0.5, 2], "light_turn": 0.4, "camera": 0.1, "camera_turn": 0.15}


@pytest.mark.parametrize("randomize", [None, LOOKS], ids=["plain", "randomised"])
@pytest.mark.parametrize("device", DEVICES)
def test_rows_have_the_pictures_that_opengl_draws(model: str, device: str, randomize: Any) -> None:
    """Over ends of episodes and what follows them: a last row shows how the episode ended, a first row its start. With
    another look in each episode, colours, lights and cameras are those of OpenGL's environment of the same number."""
    factory = cameras(model, randomize=randomize)
    batch, rows = factory.make_batch(0, 2, 2), new_rows(factory.spec, 2)
    try:
        batch.bind(rows)
        batch.reset(7)
    except UserError as error:
        pytest.skip(str(error))
    vec = vector(factory, 2, device)
    b = attached(vec)
    vec.async_reset(7)
    tape = torch.tensor([[[3.0], [-2.0]]]).expand(2 * HORIZON, 2, 1)
    found = [{name: leaf[-1].cpu().clone() for name, leaf in b.obs.items()}, *play(vec, b, tape)]
    ends = 0
    for t, row in enumerate(found):
        for name in factory.leaves:
            ours, theirs = row[name].numpy(), rows.obs[name]
            assert differs(ours, theirs) <= EDGES, f"row {t}, {name}"
            assert np.abs(ours.astype(int) - theirs.astype(int)).mean() < 3, f"row {t}, {name}"
        np.testing.assert_allclose(row["joints"], rows.obs["joints"], atol=1e-3)
        np.testing.assert_allclose(row["obs"], rows.obs["obs"], atol=1e-2)
        if t and row["done"][0] and t < len(tape):
            ends += 1
            last, first = (found[k]["image_side"][0].numpy() for k in (t, t + 1))
            assert differs(last, first) > EDGES
        if t < len(tape):
            rows.action[:] = tape[t].numpy()
            batch.step()
    batch.close()
    assert ends >= 2
    colours = found[0]["image_side"][..., :3].reshape(-1, 3)
    assert (colours[:, 0] > 3 * colours[:, 2] + 60).any()  # the cart is red
    assert (colours[:, 1] > 3 * colours[:, 0] + 60).any()  # the pole green


def test_the_contract(model: str) -> None:
    """Seeds, ids, ends, states: a vector that goes on from a snapshot draws the same."""
    check(lambda n, first, total: vector(cameras(model), n, "cpu", first, total), length=2 * HORIZON, envs=3)


def test_a_vector_of_other_looks_goes_on(model: str) -> None:
    factory = cameras(model, randomize=LOOKS)
    check(lambda n, first, total: vector(factory, n, "cpu", first, total), length=2 * HORIZON, envs=3)


@pytest.mark.parametrize("device", DEVICES)
def test_opengl_draws_robots_on_warp(model: str, device: str) -> None:
    """env.renderer=sequential with the physics of a GPU: the same bytes as OpenGL's of the same states, in several
    processes, with looks of their own."""
    factory = cameras(model, renderer="sequential", randomize=LOOKS)
    try:
        vec = vector(factory, 3, device)
    except UserError as error:
        pytest.skip(str(error))
    b = attached(vec)
    assert not vec.capturable
    vec.async_reset(7)
    batch, rows = factory.make_batch(0, 3, 3), new_rows(factory.spec, 3)
    batch.bind(rows)
    batch.reset(7)
    tape = torch.tensor([[[3.0], [-2.0], [1.0]]]).expand(2 * HORIZON, 3, 1)
    found = [{name: leaf[-1].cpu().clone() for name, leaf in b.obs.items()}, *play(vec, b, tape)]
    for t, row in enumerate(found):
        for name in factory.leaves:
            assert differs(row[name].numpy(), rows.obs[name]) <= 0.004, f"row {t}, {name}"
        if t < len(tape):
            rows.action[:] = tape[t].numpy()
            batch.step()
    batch.close()
    vec.close()
    vec.close()


def test_opengl_and_warp_keep_the_contract_alike(model: str) -> None:
    factory = cameras(model, renderer="sequential")
    try:
        vector(factory, 1).close()
    except UserError as error:
        pytest.skip(str(error))
    check(lambda n, first, total: vector(factory, n, "cpu", first, total), length=HORIZON, envs=3)


def test_the_memory_of_processes_that_draw_is_counted(model: str) -> None:
    assert cameras(model).spec.device_host_bytes == 0
    assert cameras(model, renderer="sequential").spec.device_host_bytes == PROCESS_BYTES * allowed_cores()


def how(model: str, kind: str) -> How:
    drawn = Drawn(("pole", "side"), SIZE, kind, FAR)
    return How(model, 2, "exact", forces=False, reads=(), njmax=16, nconmax=4, drawn=drawn)


@pytest.fixture
def simulation(model: str) -> Simulation:
    warp.config.log_level = warp.LOG_ERROR
    warp.init()
    found = Simulation(how(model, "rgbd"), 3, warp.get_device("cpu"))
    found.data.qpos.assign(np.array([[0, 0], [0.4, 0.2], [-0.3, -0.6]], np.float32))
    found.make_context()
    found.forward()
    found.draw()
    return found


def written(simulation: Simulation, channels: int) -> list[Array]:
    rows = [warp.zeros((3, SIZE**2, channels), dtype=warp.uint8, device="cpu") for _ in range(2)]
    simulation.write(rows)
    return [row.numpy().reshape(3, SIZE, SIZE, channels) for row in rows]


def test_bytes_are_warps_own_numbers(simulation: Simulation) -> None:
    """Colours in their order, rows from the top, each camera at its place, and metres of depth with nothing far."""
    assert simulation.context is not None
    rows = written(simulation, 4)
    with warp.ScopedDevice("cpu"):
        for camera, row in enumerate(rows):
            colours = warp.zeros((3, SIZE, SIZE), dtype=warp.vec3)
            mujoco_warp.get_rgb(simulation.context.rendered, camera, colours)
            np.testing.assert_array_equal(row[..., :3], np.rint(255 * colours.numpy()))
            depth = warp.zeros((3, SIZE, SIZE), dtype=float)
            mujoco_warp.get_depth(simulation.context.rendered, camera, FAR, depth)
            share = np.where(depth.numpy() == 0, 1, depth.numpy())
            np.testing.assert_array_equal(row[..., 3], np.rint(255 * share))
            assert 0 < (row[..., 3] < 255).mean() < 1
    assert differs(rows[0], rows[1]) > EDGES
    assert differs(rows[1][0], rows[1][1]) > EDGES


@pytest.mark.parametrize(("kind", "part"), [("rgb", slice(3)), ("depth", slice(3, 4))])
def test_a_kind_has_its_channels_alone(simulation: Simulation, model: str, kind: str, part: slice) -> None:
    both = written(simulation, 4)
    one = Simulation(how(model, kind), 3, simulation.place)
    one.data.qpos.assign(simulation.data.qpos.numpy())
    one.make_context()
    one.forward()
    one.draw()
    for row, whole in zip(written(one, part.stop - (part.start or 0)), both):
        np.testing.assert_array_equal(row, whole[..., part])


def test_what_draws_is_compiled_beside_the_rest(simulation: Simulation) -> None:
    names = {module.name for module, _ in needed(simulation)}
    assert simulation.context is None  # it was made without launches
    for part in ("_render_megakernel", "mujoco_warp._src.bvh", "render_util", "draw.pack"):
        assert any(part in name for name in names), part
    assert how_from(json.loads(json.dumps(simulation.how))) == simulation.how


def test_an_unstable_robots_joints_are_those_before(model: str) -> None:
    vec = vector(cameras(model), 2)
    b = attached(vec)
    vec.async_reset(0)
    b.obs["joints"][0].fill_(0.25)
    vec.physics.arrays["qpos"][0, 1] = float("nan")
    vec.physics.arrays["qpos"][1] = 0.5
    vec._look(0)
    assert b.obs["joints"][1].tolist() == [[0.25, 0.25], [0.5, 0.5]]


def test_memory_counts_pixels_of_every_world(model: str) -> None:
    plain = cameras(model).robot.gpu_bytes()
    with_pictures = cameras(model).gpu_bytes()
    pixels = 2 * SIZE**2 * (4 + 4)
    assert with_pictures[1] - plain[1] == pytest.approx(pixels, abs=2500)
    assert with_pictures[1] - plain[1] > pixels


def test_which_renderer_draws_where(model: str) -> None:
    assert cameras(model).gpu_keys() == ("env.params.njmax", "env.params.nconmax")
    assert cameras(model, renderer="batch").gpu_keys()[0] == "env.renderer"
    with pytest.raises(UserError, match="expected auto, batch, sequential"):
        cameras(model, renderer="opengl")


def test_the_wrist_sees_every_cube_at_its_start() -> None:
    """As test_camera.py has it with OpenGL; the two see the cube in the same pixels, but for its edges."""
    robot = RobotFactory("lift_cube", max_steps=1)
    factory = CameraFactory(robot, ("wrist",))
    batched = Batched(
        mujoco.MjModel.from_xml_path(robot.model.path), Drawn(factory.cameras, 64, "rgb", factory.what.far)
    )
    plain = robot.make_batch(0, 24, 24)
    plain.bind(new_rows(robot.spec, 24))
    plain.reset(2)
    ours = np.stack([red(batched.draw(plain.physics(env))[0]) for env in range(24)])
    assert ours.sum((1, 2)).min() >= 12
    batch, rows = factory.make_batch(0, 24, 24), new_rows(factory.spec, 24)
    try:
        batch.bind(rows)
        batch.reset(2)
    except UserError as error:
        pytest.skip(str(error))
    theirs = red(rows.obs["image"])
    batch.close()
    assert (ours & theirs).sum() > 0.8 * (ours | theirs).sum()


@pytest.mark.gpu
def test_the_wrist_of_a_captured_rollout_is_that_of_opengl() -> None:
    """lift_cube at 64 px: the first rows beside OpenGL's, then a graph's rollout beside the launched one's."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    factory = CameraFactory(RobotFactory("lift_cube", max_steps=3, njmax=112, nconmax=24), ("wrist", "fixed"))
    device = torch.device("cuda", 0)
    found = []
    for captured in (True, False):
        vec = vector(factory, 8, "cuda")
        b = Buffers.allocate(
            vec.spec, num_agents=8, horizon=2, bptt_horizon=2, state_shape=(0, 0), device=device
        )
        b.env_action = torch.zeros_like(b.action[0])
        vec.attach(b)
        assert vec.capturable

        def rollout(vec: WarpVector = vec, b: Buffers = b) -> None:
            for leaf in (*b.obs.values(), b.mask, b.reset):
                leaf[0].copy_(leaf[2])
            for t in range(2):
                vec.step_row(t)

        said: list[str] = []
        graph = Graph("rollout", rollout, enabled=captured, say=said.append)
        vec.async_reset(3)
        torch.cuda.synchronize()
        pictures = [b.obs[name][2].cpu().numpy().copy() for name in factory.leaves]
        for _ in range(4):
            graph()
            torch.cuda.synchronize()
            pictures += [b.obs[name].cpu().numpy().copy() for name in factory.leaves]
        assert said == []
        assert graph.captured == captured
        found.append(pictures)
    for one, other in zip(*found):
        assert differs(one, other) < 0.02
    assert differs(found[0][2][1], found[0][4][1]) > 0  # the rollouts are of different states
    batch, rows = factory.make_batch(0, 8, 8), new_rows(factory.spec, 8)
    try:
        batch.bind(rows)
        batch.reset(3)
    except UserError as error:
        pytest.skip(str(error))
    for name, picture in zip(factory.leaves, found[0]):
        assert differs(picture, rows.obs[name]) < 0.1  # round things have few faces there
    batch.close()
