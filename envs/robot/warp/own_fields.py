"""Prepares the numbers of a model that each world of MuJoCo Warp has of its own (weigh.h writes them at a reset).

    names = own_names(record)                       # for put_model(batch_sizes=…)
    own = OwnFields(record, mjm, worlds, device)    # own.struct goes into mf_world

What MuJoCo derives from masses (mj_setConst) is derived on the device by weigh.h, for the worlds that begin an episode
alone: mujoco_warp.set_const does it for all worlds, in some hundred launches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.envs.robot.looks import COUNTS, NAMES, Looks, look_names, looks
from metta_fast.envs.robot.randomize import Record

if TYPE_CHECKING:
    import torch
    from torch import Tensor

OF_MASSES = (
    *("body_mass", "body_inertia", "body_subtreemass", "body_invweight0"),
    *("dof_invweight0", "tendon_invweight0", "actuator_acc0"),
)
OF_FRICTION = ("geom_friction", "pair_friction")
OF_STRENGTH = ("actuator_gainprm", "actuator_biasprm", "actuator_forcerange")
OWN = (*OF_MASSES, *OF_FRICTION, *OF_STRENGTH)
"""Warp's names of fields of the physics that differ between worlds, in the order of mf_fields."""
SHARED = (
    *("mass", "inertia", "rest", "share", "body_rows", "tendon_rows", "actuator_rows"),
    *("friction", "pairs", "gain", "bias", "forcerange"),
)
WHOLE = ("parent", "sliding", "dof_body", "dof_first", "dof_count", "scaled")
MOST_WORKERS = 2048
"""Worlds that are done at the same time: enough to fill a GPU, and few enough for their scratch memory."""
LANES = 32
"""Threads of a world, of a warp."""


class Fields(ctypes.Structure):
    """mf_fields of weigh.h, field for field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in (*OWN, *SHARED, *WHOLE, "scratch")),
        *((name, ctypes.c_int32) for name in ("ngeom", "npair", "nactuator", "workers")),
        ("looks", Looks),
    ]


def own_names(record: Record | None, *, drawn: bool = True) -> tuple[str, ...]:
    """Returns the fields that worlds need of their own. drawn: pictures are drawn of them."""
    if record is None:
        return ()
    return (
        *(OF_MASSES if record.masses else ()),
        *(OF_FRICTION if record.frictions else ()),
        *(OF_STRENGTH if record.strengths else ()),
        *(look_names(record) if drawn else ()),
    )


class OwnFields:
    """Holds arrays of the model on a device, and their addresses.

    Args:
        mjm: mujoco.MjModel. worlds: Warp's own arrays of own_names, [num_envs, …] float32.
    """

    def __init__(
        self, record: Record, mjm: Any, worlds: Mapping[str, Tensor], num_envs: int, device: torch.device
    ) -> None:
        import torch  # not above: how.py asks for own_names before torch is loaded

        arrays: dict[str, Array] = {}
        if record.masses:
            arrays |= of_masses(mjm)
        if record.frictions:
            arrays |= {"friction": mjm.geom_friction, "pairs": mjm.pair_friction}
        if record.strengths:
            arrays |= of_strength(mjm)
        self.workers = min(num_envs, MOST_WORKERS)
        self._held = {
            name: torch.from_numpy(
                np.ascontiguousarray(value, np.int32 if name in WHOLE else np.float32).reshape(-1)
            ).to(device)
            for name, value in arrays.items()
            if value.size
        }
        if record.masses:
            size = 2 * mjm.nv * mjm.nv + mjm.nbody
            self._held["scratch"] = torch.zeros(self.workers * size, device=device)
        self._worlds = dict(worlds)
        seen = {name: tensor for name, tensor in self._worlds.items() if name in NAMES}
        places = {name: tensor for name, tensor in {**self._worlds, **self._held}.items() if name not in seen}
        self._bases = {
            name: torch.from_numpy(np.ascontiguousarray(getattr(mjm, name), np.float32).reshape(-1)).to(
                device
            )
            for name in seen
        }
        self._matid = torch.from_numpy(np.ascontiguousarray(mjm.geom_matid, np.int32)).to(device)
        self.struct = Fields(
            **{name: tensor.data_ptr() for name, tensor in places.items()},
            ngeom=mjm.ngeom,
            npair=mjm.npair,
            nactuator=mjm.nactuator,
            workers=self.workers,
            looks=looks(
                {name: base.data_ptr() for name, base in self._bases.items()},
                {name: (tensor.data_ptr(), tensor[0].numel()) for name, tensor in seen.items()},
                self._matid.data_ptr(),
                {name: getattr(mjm, name) for name in COUNTS},
            ),
        )
        """mf_fields."""


def of_masses(mjm: Any) -> dict[str, Array]:
    """Returns the arrays of weigh.h that masses, and what follows from them, are computed with."""
    import mujoco

    data = mujoco.MjData(mjm)
    mujoco.mj_kinematics(mjm, data)
    mujoco.mj_comPos(mjm, data)
    mujoco.mj_tendon(mjm, data)
    mujoco.mj_makeM(mjm, data)
    mujoco.mj_transmission(mjm, data)
    nv, nbody = mjm.nv, mjm.nbody
    inertia, share = np.zeros((nv, nv)), np.zeros((nbody, nv, nv))
    if nv:
        mujoco.mj_fullM(mjm, data, inertia)
    rows = np.zeros((nbody, 6, nv))
    for body in range(nbody):
        place, turn = rows[body, :3], rows[body, 3:]
        mujoco.mj_jacBodyCom(mjm, data, place, turn, body)
        own = data.ximat[body].reshape(3, 3).T @ turn
        share[body] = mjm.body_mass[body] * place.T @ place + own.T @ (mjm.body_inertia[body][:, None] * own)
    triangle = np.tril_indices(nv)
    first, count = np.arange(nv), np.ones(nv, np.int64)
    for joint in range(mjm.njnt):
        start = mjm.jnt_dofadr[joint]
        parts = {0: (3, 3), 1: (3,)}.get(int(mjm.jnt_type[joint]), ())  # free, ball
        for size in parts:
            first[start : start + size], count[start : start + size] = start, size
            start += size
    return {
        "mass": mjm.body_mass,
        "inertia": mjm.body_inertia,
        "rest": (inertia - share.sum(0))[triangle],
        "share": share[:, triangle[0], triangle[1]],
        "body_rows": rows,
        "tendon_rows": _dense(data.ten_J, mjm.ten_J_rownnz, mjm.ten_J_rowadr, mjm.ten_J_colind, nv),
        "actuator_rows": _dense(
            data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind, nv
        ),
        "parent": mjm.body_parentid,
        "sliding": mjm.body_simple == 2,
        "dof_body": mjm.dof_bodyid,
        "dof_first": first,
        "dof_count": count,
    }


def of_strength(mjm: Any) -> dict[str, Array]:
    """Returns the arrays of weigh.h that actuators' forces are scaled with."""
    import mujoco

    scaled = np.tile([0, 3], (mjm.nactuator, 1))
    muscle = mjm.actuator_gaintype == mujoco.mjtGain.mjGAIN_MUSCLE
    first = np.where(mjm.actuator_gainprm[:, 2] < 0, 3, 2)
    scaled[muscle] = np.stack([first, first + 1], 1)[muscle]
    return {
        "gain": mjm.actuator_gainprm,
        "bias": mjm.actuator_biasprm,
        "forcerange": mjm.actuator_forcerange,
        "scaled": scaled,
    }


def _dense(values: Array, counts: Array, starts: Array, columns: Array, width: int) -> Array:
    """Returns the rows of a compressed sparse matrix in full."""
    found = np.zeros((len(counts), width))
    for row, (count, start) in enumerate(zip(counts, starts)):
        part = slice(start, start + count)
        found[row, columns[part]] = np.asarray(values).reshape(-1)[part]
    return found
