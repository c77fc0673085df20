"""Finds what MuJoCo Warp cannot step in a model, with its name and what to change, before a GPU is touched.

    problem("crab.xml", "exact")      None, or ("crab.xml: MuJoCo Warp cannot step …", "leave this flag out, …")

Warp is not imported. tests/robot/test_unsupported.py compares the answers with MuJoCo Warp's own; what is not found
here, it refuses itself when the worlds are made (simulation.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from metta_fast.envs.robot.warp.presets import apply

MOST_DENSE = 60
"""Degrees of freedom up to which MuJoCo Warp has dense Jacobians."""
DISABLED = {"mjDSBL_MIDPHASE": "midphase", "mjDSBL_AUTORESET": "autoreset"}
"""Parts that cannot be turned off → the flag's name in MJCF."""
ENABLED = {
    "mjENBL_OVERRIDE": "override",
    "mjENBL_FWDINV": "fwdinv",
    "mjENBL_DIAGEXACT": "diagexact",
    "mjENBL_IPC": "ipc",
    "mjENBL_SPECULATIVE": "speculative",
}
"""Parts that cannot be turned on."""
KINDS = (
    ("actuator", "trntype", "mjtTrn", ("mjTRN_SO3",)),
    ("actuator", "dyntype", "mjtDyn", ("mjDYN_PID",)),
    ("actuator", "gaintype", "mjtGain", ("mjGAIN_PID",)),
    ("actuator", "biastype", "mjtBias", ("mjBIAS_SO3",)),
    ("equality", "type", "mjtEq", ("mjEQ_FLEXVERT", "mjEQ_DISTANCE")),
    ("sensor", "type", "mjtSensor", ("mjSENS_PLUGIN",)),
)
"""Element, its attribute in mjModel, the enum, and the values that MuJoCo Warp lacks."""
FIELDS = {"equality": "eq"}
"""Element → beginning of its arrays in mjModel, where it is another word."""


class Found(NamedTuple):
    """What cannot be stepped."""

    what: str
    cure: str


def problem(path: str, preset: str | None) -> tuple[str, str] | None:
    """Returns (why MuJoCo Warp cannot step the model, the cure), or None.

    Args:
        path: an MJCF file that MuJoCo can load.
        preset: None: exact.
    """
    import mujoco

    mjm = mujoco.MjModel.from_xml_path(path)
    apply(SimpleNamespace(opt=mjm.opt), preset or "exact")
    found = next(everything(mjm), None)
    if found is None:
        return None
    return f"{Path(path).name}: MuJoCo Warp cannot step {found.what}", f"{found.cure}, or give env.device=cpu"


def everything(mjm: Any) -> Iterator[Found]:
    """Yields what MuJoCo Warp lacks in a mujoco.MjModel, as a preset has changed it."""
    yield from _options(mjm)
    for element, attribute, enum, lacking in KINDS:
        yield from _elements(mjm, element, attribute, enum, lacking)
    yield from _plugins(mjm)
    if mjm.nflex:
        yield from _flexes(mjm)


def _options(mjm: Any) -> Iterator[Found]:
    import mujoco

    opt = mjm.opt
    for name, flag in DISABLED.items():
        if opt.disableflags & getattr(mujoco.mjtDisableBit, name):
            yield Found(f'<option><flag {flag}="disable"/>', "leave this flag out")
    for name, flag in ENABLED.items():
        if opt.enableflags & getattr(mujoco.mjtEnableBit, name):
            yield Found(f'<option><flag {flag}="enable"/>', "leave this flag out")
    if opt.noslip_iterations > 0 and opt.integrator == mujoco.mjtIntegrator.mjINT_DISCRETE:
        yield Found(
            f'<option noslip_iterations="{opt.noslip_iterations}" integrator="discrete"/>',
            "leave noslip_iterations out, or choose another integrator",
        )
    if mjm.nv > MOST_DENSE and opt.jacobian == mujoco.mjtJacobian.mjJAC_DENSE:
        yield Found(
            f'<option jacobian="dense"/> with {mjm.nv} degrees of freedom (at most {MOST_DENSE})',
            'write jacobian="auto" or "sparse"',
        )
    if opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP and opt.solver != mujoco.mjtSolver.mjSOL_NEWTON:
        yield Found('<option><flag sleep="enable"/> with this solver', 'write solver="Newton"')


def _elements(mjm: Any, element: str, attribute: str, enum: str, lacking: tuple[str, ...]) -> Iterator[Found]:
    import mujoco

    kinds = getattr(mujoco, enum)
    numbers = {int(getattr(kinds, name)): name for name in lacking}
    for i, value in enumerate(getattr(mjm, f"{FIELDS.get(element, element)}_{attribute}")):
        if int(value) in numbers:
            word = numbers[int(value)].partition("_")[2].lower()
            yield Found(
                f"{_named(mjm, element, i)} ({attribute} {word})",
                f"leave this {element} out, or use another kind",
            )


def _plugins(mjm: Any) -> Iterator[Found]:
    for element in ("body", "actuator", "sensor"):
        for i, plugin in enumerate(getattr(mjm, f"{element}_plugin")):
            if plugin >= 0:
                yield Found(f"the plugin of {_named(mjm, element, i)}", "leave the plugin out")


def _flexes(mjm: Any) -> Iterator[Found]:
    import mujoco

    for i in range(mjm.nflex):
        name = _named(mjm, "flex", i)
        if abs(mjm.flex_interp[i]) == 2:
            yield Found(f'{name} with dof="quadratic"', 'write dof="trilinear" or "full"')
        if mjm.flex_rigid[i]:
            yield Found(f"{name}, whose points all belong to one body", "use a mesh for what does not bend")
        if mjm.flex_internal[i]:
            yield Found(f'{name} with internal="true"', 'write internal="false" in its <contact>')
        touches = mjm.flex_contype[i] & mjm.flex_conaffinity[i]
        if mjm.flex_interp[i] and mjm.flex_selfcollide[i] and touches:
            yield Found(f"{name}, which touches itself", 'write selfcollide="none" in its <contact>')
        if mjm.flex_interp[i] and mjm.flex_passive[i] and mjm.flex_dim[i] >= 2:
            yield Found(f"{name} with passive contacts", 'write passive="false" in its <contact>')
    for i, kind in enumerate(mjm.geom_type):
        if kind in (mujoco.mjtGeom.mjGEOM_SDF, mujoco.mjtGeom.mjGEOM_HFIELD):
            word = "sdf" if kind == mujoco.mjtGeom.mjGEOM_SDF else "hfield"
            yield Found(
                f"{_named(mjm, 'geom', i)} ({word}) beside a flex", "use another type of geom, or no flex"
            )


def _named(mjm: Any, element: str, i: int) -> str:
    """Returns `actuator "hip_4"`, or `actuator 3 (without a name)`."""
    import mujoco

    kind = getattr(mujoco.mjtObj, f"mjOBJ_{element.upper()}")
    name = mujoco.mj_id2name(mjm, kind, i)
    return f'{element} "{name}"' if name else f"{element} {i} (without a name)"
