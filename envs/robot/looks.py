"""Describes how robots look where pictures are randomised: arrays of MuJoCo's model that look.h writes.

    names = look_names(record)                      # ("geom_rgba", "mat_rgba") with env.params.randomize.color
    struct = looks(bases, places, counts)           # mf_looks, for C

Place in the flow: on the CPU the arrays of an environment are a row beside its physics' state, which the process that
draws puts into its model (camera/); on the GPU they are MuJoCo Warp's arrays, with a row for each world
(warp/own_fields.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from metta_fast.envs.robot.randomize import Record

FIELDS = {
    "color": ("geom_rgba", "mat_rgba"),
    "light": ("light_ambient", "light_diffuse", "light_specular"),
    "light_turn": ("light_dir", "light_dir0"),
    "camera": ("cam_pos", "cam_pos0", "cam_poscom0"),
    "camera_turn": ("cam_quat", "cam_mat0"),
}
"""Key of env.params.randomize → arrays of the model that differ by it, in the order of mf_looks."""
NAMES = tuple(name for names in FIELDS.values() for name in names)
COUNTS = ("ngeom", "nmat", "nlight", "ncam")


class LookField(ctypes.Structure):
    """mf_look_field of look.h, field for field."""

    _fields_ = [("base", ctypes.c_void_p), ("out", ctypes.c_void_p), ("stride", ctypes.c_int64)]


class Looks(ctypes.Structure):
    """mf_looks of look.h, field for field."""

    _fields_ = [
        *((name, LookField) for name in NAMES),
        ("matid", ctypes.c_void_p),
        *((name, ctypes.c_int32) for name in COUNTS),
    ]


def look_names(record: Record | None) -> tuple[str, ...]:
    """Returns the arrays of the model of which each environment needs its own."""
    if record is None:
        return ()
    return tuple(name for i, names in enumerate(FIELDS.values()) if record.looks >> i & 1 for name in names)


def looks(
    bases: Mapping[str, int], outs: Mapping[str, tuple[int, int]], matid: int, counts: Mapping[str, int]
) -> Looks:
    """Returns the struct for C.

    Args:
        bases: address of each array as the model has it, float32.
        outs: for the same arrays, (address of the first environment's, floats from one environment's to the next's).
        matid: address of each geom's material, int32. counts: COUNTS of the model.
    """
    parts = {name: LookField(bases[name], *outs[name]) for name in bases}
    return Looks(**parts, matid=matid, **{name: counts[name] for name in COUNTS})
