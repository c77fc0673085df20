"""An arm of six joints with a parallel gripper lifts a cube off a table; the model is our own (lift_cube.xml)."""

from pathlib import Path

from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="lift_cube",
    xml=str(Path(__file__).with_suffix(".xml")),
    frame_skip=4,
    max_steps=100,
    options={
        "reach_weight": 1.0,
        "grasp_weight": 1.0,
        "height_weight": 4.0,
        "lifted_weight": 2.0,
        "ctrl_cost_weight": 0.005,
        "lift_height": 0.1,
        "hold_steps": 10.0,
        "area": 0.2,
        "curriculum": 0.0,
        "reset_noise_scale": 0.05,
    },
    info=(
        "reward_reach",
        "reward_grasp",
        "reward_height",
        "reward_lifted",
        "reward_ctrl",
        "reach",
        "grasp",
        "height",
        "success",
    ),
    obs_size=lambda model, options: 40,
    bodies=("hand", "cube"),
    sites=("tip",),
    sensors=("left_touch", "right_touch"),
)
