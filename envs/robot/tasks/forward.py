"""Options, info and observation that robots which move forward share (forward.h, planar.h)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from metta_fast.envs.robot.tasks.task import Option

EXCLUDE = "exclude_current_positions_from_observation"
XY_INFO = (
    "x_position",
    "y_position",
    "distance_from_origin",
    "x_velocity",
    "y_velocity",
    "reward_forward",
    "reward_ctrl",
)
"""Written by mf_put_xy_info."""
PLANAR_INFO = (
    "x_position",
    "z_distance_from_origin",
    "x_velocity",
    "reward_forward",
    "reward_ctrl",
    "reward_survive",
)
"""Written by mf_planar_after."""


def forward_options(ctrl_cost_weight: float) -> dict[str, Option]:
    """Returns the options of a robot that never ends an episode: mf_forward_params."""
    return {
        "forward_reward_weight": 1.0,
        "ctrl_cost_weight": ctrl_cost_weight,
        "reset_noise_scale": 0.1,
        EXCLUDE: True,
    }


def planar_options(
    healthy_z_range: tuple[float, float], healthy_angle_range: tuple[float, float]
) -> dict[str, Option]:
    """Returns the options of a planar walker: mf_planar_params."""
    return {
        "forward_reward_weight": 1.0,
        "ctrl_cost_weight": 1e-3,
        "healthy_reward": 1.0,
        "healthy_z_range": healthy_z_range,
        "healthy_angle_range": healthy_angle_range,
        "reset_noise_scale": 5e-3,
        "terminate_when_unhealthy": True,
        EXCLUDE: True,
    }


def state_size(unseen: int) -> Callable[[Any, Mapping[str, Any]], int]:
    """Returns obs_size for positions and velocities, of which `unseen` positions can be excluded."""
    return lambda model, options: model.nq + model.nv - unseen * options[EXCLUDE]
