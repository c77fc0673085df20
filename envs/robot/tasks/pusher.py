"""An arm of seven joints pushes a cylinder to a goal (Gymnasium's Pusher-v5)."""

from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="pusher",
    gymnasium_id="Pusher-v5",
    xml="pusher_v5.xml",
    frame_skip=5,
    max_steps=100,
    options={
        "reward_near_weight": 0.5,
        "reward_dist_weight": 1.0,
        "reward_control_weight": 0.1,
    },
    info=(
        "reward_dist",
        "reward_ctrl",
        "reward_near",
    ),
    obs_size=lambda model, options: 23,
    bodies=("tips_arm", "object", "goal"),
)
