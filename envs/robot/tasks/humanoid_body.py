"""Model, options, info and observation that Humanoid and HumanoidStandup share (humanoid_body.h)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from metta_fast.envs.robot.tasks.forward import EXCLUDE, state_size

VIEW = {
    EXCLUDE: True,
    "include_cinert_in_observation": True,
    "include_cvel_in_observation": True,
    "include_qfrc_actuator_in_observation": True,
    "include_cfrc_ext_in_observation": True,
}
"""Switches of the observation: mf_humanoid_view."""
COST_RANGE = (-float("inf"), 10.0)
"""Of the cost of contacts."""
TENDONS = ("tendon_length[0]", "tendon_length[1]", "tendon_velocity[0]", "tendon_velocity[1]")
"""Written by mf_put_tendons."""


def obs_size(model: Any, options: Mapping[str, Any]) -> int:
    """Returns how many numbers are observed: the state, then what the switches add for each body or joint."""
    bodies = model.nbody - 1
    return int(
        state_size(unseen=2)(model, options)
        + 10 * bodies * options["include_cinert_in_observation"]
        + 6 * bodies * options["include_cvel_in_observation"]
        + (model.nv - 6) * options["include_qfrc_actuator_in_observation"]
        + 6 * bodies * options["include_cfrc_ext_in_observation"]
    )
