"""One leg hops forward in a plane (Gymnasium's Hopper-v5)."""

from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="hopper",
    gymnasium_id="Hopper-v5",
    xml="hopper.xml",
    frame_skip=4,
    max_steps=1000,
    options={
        "forward_reward_weight": 1.0,
        "ctrl_cost_weight": 1e-3,
        "healthy_reward": 1.0,
        "healthy_state_range": (-100.0, 100.0),
        "healthy_z_range": (0.7, float("inf")),
        "healthy_angle_range": (-0.2, 0.2),
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
