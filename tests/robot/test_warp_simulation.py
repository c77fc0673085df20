"""Warp without torch (envs/robot/warp/simulation.py, compile/): what is derived for new episodes, what is compiled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("mujoco_warp")

import mujoco
import warp

from metta_fast.envs.robot.env import RobotFactory
from metta_fast.envs.robot.warp.compile import together
from metta_fast.envs.robot.warp.compile.modules import needed
from metta_fast.envs.robot.warp.how import how_of
from metta_fast.envs.robot.warp.memory import CODE, bytes_of
from metta_fast.envs.robot.warp.physics import FLOATS
from metta_fast.envs.robot.warp.simulation import DERIVED, FORCES, STATE, How, Simulation, stage

MODEL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 .1"/>
    <body pos="0 0 1">
      <freejoint/><geom type="capsule" size=".1 .3"/><site name="top" pos="0 0 .4"/>
      <body pos="0 0 .5">
        <joint name="bend" axis="0 1 0" damping=".1" range="-1 1" limited="true"/><geom type="capsule" size=".05 .2"/>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="pull"><joint joint="bend" coef="2"/></fixed></tendon>
  <actuator><motor joint="bend" gear="3"/><position tendon="pull" kp="2"/></actuator>
</mujoco>
"""
"""A free body, a joint with a limit, a contact, a tendon that an actuator pulls: every kind of array has numbers."""

PLAIN = MODEL.replace('range="-1 1" limited="true"', "")
RICH = (
    MODEL.replace("<worldbody>", '<option density="1000" viscosity=".5"/><worldbody>')
    .replace('<body pos="0 0 .5">', '<body pos="0 0 .5" gravcomp=".7">')
    .replace('damping=".1"', 'damping=".1" frictionloss=".3"')
)
"""Without what can be left out, and with all of it."""


@pytest.fixture(scope="module")
def how(tmp_path_factory: pytest.TempPathFactory) -> How:
    path = tmp_path_factory.mktemp("model") / "own.xml"
    path.write_text(MODEL)
    return How(str(path), 2, "exact", forces=False, reads=(), njmax=32, nconmax=8)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warp.config.log_level = warp.LOG_ERROR
    warp.init()


def test_every_array_that_rules_read_is_state_or_derived() -> None:
    assert set(FLOATS) == {*STATE, *DERIVED}


@pytest.mark.parametrize(
    ("reads", "part"),
    [
        ((), ""),
        (("cfrc_ext",), ""),
        (("xpos", "cfrc_ext"), "poses"),
        (("xpos", "ten_length"), "places"),
        (("cinert", "cvel"), "motion"),
        (("qfrc_actuator",), "motion"),
        (("sensordata",), "all"),
        (("xpos", "qfrc_constraint"), "all"),
    ],
)
def test_no_more_of_a_forward_than_is_read(reads: tuple[str, ...], part: str) -> None:
    assert stage(reads) == part


@pytest.mark.parametrize("name", [name for name in DERIVED if name not in FORCES])
def test_a_part_of_a_forward_gives_what_the_whole_gives(how: How, name: str) -> None:
    """From states far from those of the arrays before; the state itself stays."""
    rng = np.random.default_rng(0)
    some = Simulation(how._replace(reads=(name,)), 3, warp.get_device("cpu"))
    whole = Simulation(how._replace(reads=("qfrc_constraint",)), 3, warp.get_device("cpu"))
    qpos = np.tile(some.mjm.qpos0, (3, 1)) + rng.normal(0, 0.2, (3, some.mjm.nq))
    state = {
        "qpos": qpos,
        "qvel": rng.normal(0, 1, (3, some.mjm.nv)),
        "ctrl": rng.normal(0, 1, (3, some.mjm.nu)),
    }
    for simulation in (some, whole):
        simulation.step()
        for array, values in state.items():
            getattr(simulation.data, array).assign(values.astype(np.float32))
    before = {array: getattr(some.data, array).numpy() for array in STATE}
    some.forward()
    whole.forward()
    found, expected = (getattr(one.data, name).numpy() for one in (some, whole))
    np.testing.assert_array_equal(found, expected)
    assert name == "sensordata" or np.ptp(expected) > 0
    if name not in ("qfrc_constraint", "sensordata"):
        for array in (array for array in STATE if array not in ("qacc", "act_dot")):
            np.testing.assert_array_equal(getattr(some.data, array).numpy(), before[array])


@pytest.mark.parametrize("text", [PLAIN, RICH], ids=["plain", "rich"])
def test_what_is_left_out_changes_no_step(text: str, tmp_path: Path) -> None:
    """Beside MuJoCo itself, in the air: 10 steps of Runge-Kutta's method in single precision."""
    path = tmp_path / "own.xml"
    path.write_text(text.replace("<worldbody>", '<option integrator="RK4"/><worldbody>', 1))
    simulation = Simulation(
        How(str(path), 2, "exact", forces=False, reads=(), njmax=16, nconmax=8), 2, warp.get_device("cpu")
    )
    model = mujoco.MjModel.from_xml_path(str(path))
    rich = text is RICH
    flags = {mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS, mujoco.mjtDisableBit.mjDSBL_LIMIT}
    off = {flag for flag in flags if simulation.mjm.opt.disableflags & flag}
    assert off == (set() if rich else flags)
    rng = np.random.default_rng(1)
    start = {
        "qpos": np.add(model.qpos0, [0, 0, 3, 0, 0, 0, 0, 0.2]),
        "qvel": rng.normal(0, 1, 7),
        "ctrl": [0.4, -0.3],
    }
    data = mujoco.MjData(model)
    for name, values in start.items():
        getattr(data, name)[:] = values
        getattr(simulation.data, name).assign(np.tile(np.float32(values), (2, 1)))
    for _ in range(5):
        simulation.step()
        mujoco.mj_step(model, data, 2)
    for name in ("qpos", "qvel", "qacc"):
        expected = np.tile(getattr(data, name), (2, 1))
        np.testing.assert_allclose(
            getattr(simulation.data, name).numpy(), expected, rtol=1e-4, atol=1e-4, err_msg=name
        )
    assert bool(simulation.data.qfrc_gravcomp.numpy().any()) is rich


def test_newtons_fast_start_is_left_out_where_rules_read_its_rounding_errors(how: How) -> None:
    """tests/robot/test_warp.py compares InvertedDoublePendulum's, which are 0."""
    for reads, slower in (((), False), (("xpos",), False), (("qfrc_constraint",), True)):
        option = Simulation(how._replace(reads=reads), 1, warp.get_device("cpu")).model.opt
        assert option.run_qacc_smooth is slower


def test_launches_that_add_nothing_are_left_out(how: How) -> None:
    found: list[str] = []
    simulation = Simulation(how, 1, warp.get_device("cpu"))
    real = warp.launch
    warp.launch = lambda kernel, *_args, **_keys: found.append(kernel.key)
    try:
        with simulation._trimmed:
            data = simulation.data
            for name in ("_gravity_force__locals__kernel", "_apply_ft", "_cinert"):
                warp.launch(SimpleNamespace(key=name), 1, [data.xfrc_applied])
            warp.launch(kernel=SimpleNamespace(key="_apply_ft"), dim=1, inputs=[data.xpos])
    finally:
        warp.launch = real
    assert found == ["_cinert", "_apply_ft"]


def test_the_solvers_loop_runs_on_until_all_worlds_are_done() -> None:
    """On the CPU as on a GPU: some iterations without a question, then two for each."""
    from metta_fast.envs.robot.warp.trim import EACH, UNROLLED, Trimmed

    left = warp.full(1, 5, dtype=int, device="cpu")
    calls: list[int] = []

    def _solver_iteration(step: int) -> None:
        calls.append(step)
        left.assign(np.array([max(0, 5 - len(calls))], np.int32))

    none = SimpleNamespace(body_gravcomp=np.zeros(1))
    with Trimmed(none, SimpleNamespace(xfrc_applied=None), ()):
        warp.capture_while(left, while_body=_solver_iteration, step=7)
    assert calls == [7] * (UNROLLED + EACH)
    assert warp.capture_while.__module__.startswith("warp")


def test_memory_is_linear_in_worlds_and_grows_with_room(how: How) -> None:
    once, each = bytes_of(how)
    _, roomier = bytes_of(how._replace(njmax=64))
    data = Simulation(how, 1, warp.get_device("cpu")).data
    own = sum(
        array.size * warp.types.type_size_in_bytes(array.dtype)
        for array in vars(data).values()
        if isinstance(array, warp.array)
    )
    assert own < each < 10 * own
    assert roomier > each + 32 * 4 * 7
    assert CODE <= once < CODE + 2**20


def test_a_run_without_launches_finds_what_a_real_one_loads(how: How) -> None:
    """Nothing is computed; the real step after it needs no other module."""
    simulation = Simulation(how._replace(forces=True, reads=("xpos",)), 2, warp.get_device("cpu"))
    found = needed(simulation)
    assert simulation.data.xpos.numpy().any() == 0
    assert (simulation.substeps, simulation.model.opt.iterations) == (2, 100)
    loaded: set[tuple[Any, int]] = set()
    from warp._src import context

    real = context.Module.load

    def load(self: Any, device: Any, block_dim: int | None = None, **keys: Any) -> Any:
        loaded.add((self, block_dim))
        return real(self, device, block_dim, **keys)

    context.Module.load = load
    try:
        simulation.step()
        simulation.forward()
    finally:
        context.Module.load = real
    assert loaded == set(found)
    assert simulation.data.xpos.numpy().any()


def jobs_of(how: How, folder: Path, count: int) -> list[together.Job]:
    """Returns jobs for compute capability 9.0: the model's own small modules."""
    simulation = Simulation(how, 1, warp.get_device("cpu"))
    modules = [module for module, _ in needed(simulation) if module.name.startswith("_next_time")]
    modules += [module for module, _ in needed(simulation) if module.name.startswith("_qfrc")]
    jobs = []
    for module in modules[:count]:
        name = module.get_module_identifier(256)
        file = module._get_compile_output_name(None, 90, block_dim=256)
        jobs.append(together.Job(module.name, 256, name, str(folder / name), file))
    return jobs


def card(how: How) -> Any:
    return SimpleNamespace(how=how, num_envs=4, place=SimpleNamespace(get_cuda_compile_arch=lambda: 90))


def test_children_compile_for_a_gpu_that_is_not_there(how: How, tmp_path: Path) -> None:
    jobs = jobs_of(how, tmp_path, 3)
    assert len(jobs) == 3
    assert together._in_children(card(how), jobs, 2) == ""
    for job in jobs:
        assert (Path(job.folder) / job.file).read_bytes().startswith(b"\x7fELF")


def test_what_children_cannot_compile_is_told(how: How, tmp_path: Path) -> None:
    """The parent compiles it then, and raises its error."""
    (job,) = jobs_of(how, tmp_path, 1)
    other = job._replace(identifier="wp_other")
    assert "expected wp_other" in together._in_children(
        card(how), [other, job._replace(name="nonesuch"), other], 1
    )
    note = together._in_children(card(how._replace(path="/nonesuch.xml")), [job], 1)
    assert "a process that compiles kernels ended" in note
    assert "nonesuch.xml" in note


def test_nothing_is_compiled_ahead_on_the_cpu(how: How) -> None:
    simulation = Simulation(how, 1, warp.get_device("cpu"))
    assert together.compile_together(simulation) == together.Compiled()


def test_how_a_robot_is_simulated() -> None:
    how = how_of(RobotFactory("ant", preset="fast", njmax=48))
    assert how._replace(path="") == How("", 5, "fast", True, ("cfrc_ext", "xpos"), 48, None)
