"""A chain of three links swims forward (Gymnasium's Swimmer-v5)."""

from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="swimmer",
    gymnasium_id="Swimmer-v5",
    xml="swimmer.xml",
    frame_skip=4,
    max_steps=1000,
    options={
        "forward_reward_weight": 1.0,
        "ctrl_cost_weight": 1e-4,
        "reset_noise_scale": 0.1,
        "exclude_current_positions_from_observation": True,
    },
    info=(
        "x_position",
        "y_position",
        "distance_from_origin",
        "x_velocity",
        "y_velocity",
        "reward_forward",
        "reward_ctrl",
    ),
    obs_size=lambda model, options: (
        model.nq + model.nv - 2 * options["exclude_current_positions_from_observation"]
    ),
)
