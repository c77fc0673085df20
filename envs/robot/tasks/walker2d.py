"""Two legs walk forward in a plane (Gymnasium's Walker2d-v5)."""

from metta_fast.envs.robot.tasks.forward import PLANAR_INFO, planar_options, state_size
from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="walker2d",
    gymnasium_id="Walker2d-v5",
    xml="walker2d_v5.xml",
    frame_skip=4,
    max_steps=1000,
    options=planar_options(healthy_z_range=(0.8, 2.0), healthy_angle_range=(-1.0, 1.0)),
    info=PLANAR_INFO,
    obs_size=state_size(unseen=1),
)
