"""A cart keeps a pole upright (Gymnasium's InvertedPendulum-v5)."""

from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="inverted_pendulum",
    gymnasium_id="InvertedPendulum-v5",
    xml="inverted_pendulum.xml",
    frame_skip=2,
    max_steps=1000,
    options={
        "reset_noise_scale": 0.01,
    },
    info=("reward_survive",),
    obs_size=lambda model, options: model.nq + model.nv,
)
