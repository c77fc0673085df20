"""A chain of three links swims forward (Gymnasium's Swimmer-v5)."""

from metta_fast.envs.robot.tasks.forward import XY_INFO, forward_options, state_size
from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="swimmer",
    gymnasium_id="Swimmer-v5",
    xml="swimmer.xml",
    frame_skip=4,
    max_steps=1000,
    options=forward_options(ctrl_cost_weight=1e-4),
    info=XY_INFO,
    obs_size=state_size(unseen=2),
)
