"""A cart keeps two linked poles upright (Gymnasium's InvertedDoublePendulum-v5)."""

from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="inverted_double_pendulum",
    gymnasium_id="InvertedDoublePendulum-v5",
    xml="inverted_double_pendulum.xml",
    frame_skip=5,
    max_steps=1000,
    options={
        "healthy_reward": 10.0,
        "reset_noise_scale": 0.1,
    },
    info=(
        "reward_survive",
        "distance_penalty",
        "velocity_penalty",
    ),
    obs_size=lambda model, options: 2 * model.nq + model.nv,
)
