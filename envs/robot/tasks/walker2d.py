"""Two legs walk forward in a plane (Gymnasium's Walker2d-v5)."""

from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="walker2d",
    gymnasium_id="Walker2d-v5",
    xml="walker2d_v5.xml",
    frame_skip=4,
    max_steps=1000,
    options={
        "forward_reward_weight": 1.0,
        "ctrl_cost_weight": 1e-3,
        "healthy_reward": 1.0,
        "healthy_z_range": (0.8, 2.0),
        "healthy_angle_range": (-1.0, 1.0),
        "reset_noise_scale": 5e-3,
        "terminate_when_unhealthy": True,
        "exclude_current_positions_from_observation": True,
    },
    info=(
        "x_position",
        "z_distance_from_origin",
        "x_velocity",
        "reward_forward",
        "reward_ctrl",
        "reward_survive",
    ),
    obs_size=lambda model, options: (
        model.nq + model.nv - options["exclude_current_positions_from_observation"]
    ),
)
