"""A torso on four legs walks forward (Gymnasium's Ant-v5)."""

from metta_fast.envs.robot.tasks.forward import XY_INFO, state_size
from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="ant",
    gymnasium_id="Ant-v5",
    xml="ant.xml",
    frame_skip=5,
    max_steps=1000,
    options={
        "forward_reward_weight": 1.0,
        "ctrl_cost_weight": 0.5,
        "contact_cost_weight": 5e-4,
        "healthy_reward": 1.0,
        "main_body": 1.0,
        "healthy_z_range": (0.2, 1.0),
        "contact_force_range": (-1.0, 1.0),
        "reset_noise_scale": 0.1,
        "terminate_when_unhealthy": True,
        "exclude_current_positions_from_observation": True,
        "include_cfrc_ext_in_observation": True,
    },
    info=(*XY_INFO, "reward_contact", "reward_survive"),
    obs_size=lambda model, options: (
        state_size(unseen=2)(model, options)
        + 6 * (model.nbody - 1) * options["include_cfrc_ext_in_observation"]
    ),
    body_options=("main_body",),
)
