"""Half of a cheetah runs forward in a plane (Gymnasium's HalfCheetah-v5)."""

from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="half_cheetah",
    gymnasium_id="HalfCheetah-v5",
    xml="half_cheetah.xml",
    frame_skip=5,
    max_steps=1000,
    options={
        "forward_reward_weight": 1.0,
        "ctrl_cost_weight": 0.1,
        "reset_noise_scale": 0.1,
        "exclude_current_positions_from_observation": True,
    },
    info=("x_position", "x_velocity", "reward_forward", "reward_ctrl"),
    obs_size=lambda model, options: (
        model.nq + model.nv - options["exclude_current_positions_from_observation"]
    ),
)
