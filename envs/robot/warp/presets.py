"""Says what a preset of robots on the GPU changes in the model.

exact    the model's own integrator, timestep and solver; Newton in place of PGS, which MuJoCo Warp has not
"""

from __future__ import annotations

from typing import Any

from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.errors import UserError

PRESETS = ("exact",)


def check_preset(preset: str) -> str:
    """Returns the preset. Raises UserError for one that is not known."""
    if preset not in PRESETS:
        raise UserError(
            f"env.params.preset={preset!r} is not known; {did_you_mean(str(preset), PRESETS)}"
            f"there is {', '.join(PRESETS)}"
        )
    return preset


def apply(mjm: Any, preset: str) -> list[str]:
    """Changes the mujoco.MjModel as the preset says. Returns what differs from the model's own step, for the log."""
    import mujoco

    assert preset == "exact"
    if mjm.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        mjm.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
        return ["the constraint solver is Newton in place of the model's PGS, which MuJoCo Warp has not"]
    return []
