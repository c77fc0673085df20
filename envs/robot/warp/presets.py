"""Says what a preset of robots on the GPU changes in the model.

    exact    the model's own integrator, timestep and solver; Newton in place of PGS, which MuJoCo Warp has not
    fast     Euler with half the timestep in place of Runge-Kutta; Newton with at most 4 iterations
    loose    Euler with the model's own timestep; the same solver: other physics

docs/robots.md has how far statistics of the robots differ. A changed model is the GPU's alone: evaluation steps the
model's own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.errors import UserError

PRESETS = ("exact", "fast", "loose")
ITERATIONS, LINE_SEARCH = 4, 8
"""Of Newton's method and its line search, for fast and loose: with 2 the statistics visibly differ."""


class Change(NamedTuple):
    """What a preset made of a model."""

    substeps: int
    """Physics steps in place of one of the model's own."""
    early_stop: bool
    """Whether the solver stops where it has converged: a loop in the graph, worth it for many iterations only."""
    notes: list[str]
    """What differs from the model's own step, for the log."""


def check_preset(preset: str) -> str:
    """Returns the preset. Raises UserError for one that is not known."""
    if preset not in PRESETS:
        raise UserError(
            f"env.params.preset={preset!r} is not known; {did_you_mean(str(preset), PRESETS)}"
            f"there are {', '.join(PRESETS)}"
        )
    return preset


def apply(mjm: Any, preset: str) -> Change:
    """Changes the mujoco.MjModel as the preset says."""
    import mujoco

    notes = []
    if mjm.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        mjm.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
        notes.append("the constraint solver is Newton in place of the model's PGS, which MuJoCo Warp has not")
    if preset == "exact":
        return Change(1, True, notes)
    substeps = 1
    if mjm.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
        mjm.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
        if preset == "fast":
            substeps = 2
            mjm.opt.timestep /= substeps
        notes.append(
            f"preset={preset}: Euler's method with a timestep of {mjm.opt.timestep:g} s in place of Runge-Kutta's"
        )
    mjm.opt.iterations, mjm.opt.ls_iterations = ITERATIONS, LINE_SEARCH
    notes.append(f"preset={preset}: at most {ITERATIONS} iterations of the constraint solver")
    return Change(substeps, False, notes)
