"""A 3D figure walks forward (Gymnasium's Humanoid-v5)."""

from metta_fast.envs.robot.tasks.humanoid_body import COST_RANGE, TENDONS, VIEW, obs_size
from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="humanoid",
    gymnasium_id="Humanoid-v5",
    xml="humanoid.xml",
    frame_skip=5,
    max_steps=1000,
    options={
        "forward_reward_weight": 1.25,
        "ctrl_cost_weight": 0.1,
        "contact_cost_weight": 5e-7,
        "contact_cost_range": COST_RANGE,
        "healthy_reward": 5.0,
        "healthy_z_range": (1.0, 2.0),
        "reset_noise_scale": 1e-2,
        "terminate_when_unhealthy": True,
        **VIEW,
    },
    info=(
        "x_position",
        "y_position",
        *TENDONS,
        "distance_from_origin",
        "x_velocity",
        "y_velocity",
        "reward_survive",
        "reward_forward",
        "reward_ctrl",
        "reward_contact",
    ),
    obs_size=obs_size,
)
