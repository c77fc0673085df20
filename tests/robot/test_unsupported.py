"""Models that MuJoCo Warp cannot step: refused by name before anything starts, and all that Warp itself refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mujoco")

import mujoco

from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.env import TASKS, RobotFactory
from metta_fast.envs.robot.warp.unsupported import everything, problem
from metta_fast.machine.hardware import GIB, Gpu, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve

CARD = Machine(16, 64, 128 * GIB, (Gpu("NVIDIA H200", 139 * GIB, (9, 0)),), "cuda", driver=(13, 0), nvrtc=13)
PENDULUM = """<mujoco><compiler autolimits="true"/>{option}<worldbody>
<geom name="floor" type="plane" size="5 5 .1"/>
<body name="cart" pos="0 0 1"><joint name="slider" type="slide" axis="1 0 0" range="-1 1"/><geom size=".1"/>
<body name="pole" pos="0 0 .1"><joint name="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 .6" size=".05"/>
</body></body>{bodies}</worldbody><actuator><motor name="push" joint="slider" gear="100" ctrlrange="-3 3"/></actuator>
{more}</mujoco>"""
CHAIN = '<body pos="0 {0} 2"><freejoint/><geom size=".1"/></body>'
FLEX = """<flexcomp name="cloth" type="grid" count="{0}" spacing=".1 .1 .1" dim="{1}" {2} mass="1" radius=".02"
pos="0 0 3"/>"""
CASES = {
    "flag midphase": ({"option": '<option><flag midphase="disable"/></option>'}, '<flag midphase="disable"/>'),
    "flag fwdinv": ({"option": '<option><flag fwdinv="enable"/></option>'}, '<flag fwdinv="enable"/>'),
    "flag override": ({"option": '<option><flag override="enable"/></option>'}, '<flag override="enable"/>'),
    "noslip": (
        {"option": '<option noslip_iterations="3" integrator="discrete"/>'},
        'noslip_iterations="3" integrator="discrete"',
    ),
    "dense": (
        {
            "option": '<option jacobian="dense"/>',
            "bodies": "".join(CHAIN.format(i) for i in range(10)),
        },
        'jacobian="dense"/> with 62 degrees of freedom (at most 60)',
    ),
    "sleep": (
        {"option": '<option solver="CG"><flag sleep="enable"/></option>'},
        'flag sleep="enable"/> with this solver',
    ),
    "quadratic": ({"bodies": FLEX.format("3 3 3", 3, 'dof="quadratic"')}, 'flex "cloth" with dof="quadratic"'),
    "rigid": ({"bodies": FLEX.format("3 3 1", 2, 'rigid="true"')}, 'flex "cloth", whose points'),
    "fine: PGS": ({"option": '<option solver="PGS"/>'}, ""),
    "fine: elliptic": ({"option": '<option cone="elliptic" integrator="implicitfast"/>'}, ""),
    "fine: sensors": ({"more": '<sensor><jointpos joint="hinge"/><touch site="s"/></sensor>',
                       "bodies": '<body><site name="s"/><geom size=".1" pos="0 0 4"/></body>'}, ""),
    "fine: noslip": ({"option": '<option noslip_iterations="3"/>'}, ""),
}  # fmt: skip


def written(folder: Path, parts: dict[str, str]) -> str:
    file = folder / "own.xml"
    file.write_text(PENDULUM.format(**{"option": "", "bodies": "", "more": ""} | parts))
    return str(file)


@pytest.mark.parametrize("name", CASES)
def test_what_warp_lacks_is_named_and_no_more(name: str, tmp_path: Path) -> None:
    pytest.importorskip("mujoco_warp")
    import mujoco_warp
    import warp

    parts, says = CASES[name]
    path = written(tmp_path, parts)
    found = problem(path, None)
    mjm = mujoco.MjModel.from_xml_path(path)
    if mjm.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        mjm.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    with warp.ScopedDevice("cpu"):
        if says:
            assert found is not None
            assert f"own.xml: MuJoCo Warp cannot step {says}" in found[0] or says in found[0]
            assert found[1].endswith(", or give env.device=cpu")
            with pytest.raises((NotImplementedError, ValueError)):
                mujoco_warp.put_model(mjm)
        else:
            assert found is None
            mujoco_warp.put_model(mjm)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_of_ours_can_be_stepped(task: str) -> None:
    for preset in ("exact", "fast", "loose"):
        assert problem(RobotFactory(task).model.path, preset) is None


def test_lists_of_what_is_lacking_are_warps_own() -> None:
    pytest.importorskip("mujoco_warp")
    from mujoco_warp._src import types

    from metta_fast.envs.robot.warp import unsupported

    def lacking(enum: str, ours: type) -> set[str]:
        known = {int(value) for value in ours}  # type: ignore[attr-defined]
        members = getattr(mujoco, enum).__members__.items()
        return {name for name, value in members if int(value) not in known and not name.startswith("mjN")}

    assert lacking("mjtDisableBit", types.DisableBit) == set(unsupported.DISABLED)
    assert lacking("mjtEnableBit", types.EnableBit) == set(unsupported.ENABLED)
    kinds = {
        "mjtTrn": types.TrnType,
        "mjtDyn": types.DynType,
        "mjtGain": types.GainType,
        "mjtBias": types.BiasType,
        "mjtEq": types.EqType,
        "mjtSensor": types.SensorType,
    }
    for _, _, enum, names in unsupported.KINDS:
        assert lacking(enum, kinds[enum]) - {"mjTRN_UNDEFINED"} == set(names)


def test_the_run_is_refused_before_the_start(tmp_path: Path) -> None:
    path = written(tmp_path, {"option": '<option><flag midphase="disable"/></option>'})
    words = ["hardware=h200", "env=inverted_pendulum", f"env.params.xml_file={path}"]
    with pytest.raises(UserError) as caught:
        resolve(compose([*words, "env.device=cuda"]), machine=CARD)
    assert str(caught.value) == (
        'env.device=cuda: own.xml: MuJoCo Warp cannot step <option><flag midphase="disable"/>; leave this flag out, or '
        "give env.device=cpu"
    )
    assert resolve(compose(words), machine=CARD).config.env.device == "cpu"


def test_nothing_is_found_in_a_plain_model(tmp_path: Path) -> None:
    assert list(everything(mujoco.MjModel.from_xml_path(written(tmp_path, {})))) == []
