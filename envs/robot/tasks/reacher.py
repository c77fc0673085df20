"""An arm of two links brings its fingertip to a target (Gymnasium's Reacher-v5)."""

from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="reacher",
    gymnasium_id="Reacher-v5",
    xml="reacher.xml",
    frame_skip=2,
    max_steps=50,
    options={
        "reward_dist_weight": 1.0,
        "reward_control_weight": 1.0,
    },
    info=(
        "reward_dist",
        "reward_ctrl",
    ),
    obs_size=lambda model, options: 10,
    bodies=("fingertip", "target"),
)
