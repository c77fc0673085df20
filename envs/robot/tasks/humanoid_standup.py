"""The humanoid, lying down, gets up (Gymnasium's HumanoidStandup-v5)."""

from metta_fast.envs.robot.tasks.humanoid_body import COST_RANGE, TENDONS, VIEW, obs_size
from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="humanoid_standup",
    gymnasium_id="HumanoidStandup-v5",
    xml="humanoidstandup.xml",
    frame_skip=5,
    max_steps=1000,
    options={
        "uph_cost_weight": 1.0,
        "ctrl_cost_weight": 0.1,
        "impact_cost_weight": 5e-7,
        "impact_cost_range": COST_RANGE,
        "reset_noise_scale": 1e-2,
        **VIEW,
    },
    info=(
        "x_position",
        "y_position",
        "z_distance_from_origin",
        *TENDONS,
        "reward_linup",
        "reward_quadctrl",
        "reward_impact",
    ),
    obs_size=obs_size,
)
