"""Half of a cheetah runs forward in a plane (Gymnasium's HalfCheetah-v5)."""

from metta_fast.envs.robot.tasks.forward import forward_options, state_size
from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="half_cheetah",
    gymnasium_id="HalfCheetah-v5",
    xml="half_cheetah.xml",
    frame_skip=5,
    max_steps=1000,
    options=forward_options(ctrl_cost_weight=0.1),
    info=("x_position", "x_velocity", "reward_forward", "reward_ctrl"),
    obs_size=state_size(unseen=1),
)
