"""Finds how many constraints and contacts a world needs room for: twice what random actions need, and some.

    njmax, nconmax = room_for(mjm)

Where it does not do, steps in which something did not fit are counted (env/warnings) and named in the log.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS = 400
"""Physics steps of the trial, half of them from the model's own start."""


def room_for(mjm: Any) -> tuple[int, int]:
    """Returns (constraints, contacts) for each world.

    Args:
        mjm: mujoco.MjModel.
    """
    import mujoco

    data, rng = mujoco.MjData(mjm), np.random.default_rng(0)
    low = np.where(mjm.actuator_ctrllimited, mjm.actuator_ctrlrange[:, 0], -1.0)
    high = np.where(mjm.actuator_ctrllimited, mjm.actuator_ctrlrange[:, 1], 1.0)
    rows = contacts = 0
    for step in range(STEPS):
        if step % 4 == 0:
            data.ctrl[:] = rng.uniform(low, high)
        mujoco.mj_step(mjm, data)
        rows, contacts = max(rows, int(data.nefc)), max(contacts, int(data.ncon))
    return _upwards(2 * rows + 16, 16), _upwards(2 * contacts + 8, 8)


def _upwards(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
