"""What Humanoid and HumanoidStandup share: the switches of their observation (humanoid_body.h)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VIEW = {
    "exclude_current_positions_from_observation": True,
    "include_cinert_in_observation": True,
    "include_cvel_in_observation": True,
    "include_qfrc_actuator_in_observation": True,
    "include_cfrc_ext_in_observation": True,
}


def obs_size(model: Any, options: Mapping[str, Any]) -> int:
    """Numbers observed: positions and velocities, then what the switches add for each body or joint."""
    bodies = model.nbody - 1
    return int(
        model.nq
        + model.nv
        - 2 * options["exclude_current_positions_from_observation"]
        + 10 * bodies * options["include_cinert_in_observation"]
        + 6 * bodies * options["include_cvel_in_observation"]
        + (model.nv - 6) * options["include_qfrc_actuator_in_observation"]
        + 6 * bodies * options["include_cfrc_ext_in_observation"]
    )
