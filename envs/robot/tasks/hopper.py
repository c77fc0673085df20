"""One leg hops forward in a plane (Gymnasium's Hopper-v5)."""

from metta_fast.envs.robot.tasks.forward import PLANAR_INFO, planar_options, state_size
from metta_fast.envs.robot.tasks.task import Task

TASK = Task(
    name="hopper",
    gymnasium_id="Hopper-v5",
    xml="hopper.xml",
    frame_skip=4,
    max_steps=1000,
    options={
        **planar_options(healthy_z_range=(0.7, float("inf")), healthy_angle_range=(-0.2, 0.2)),
        "healthy_state_range": (-100.0, 100.0),
    },
    info=PLANAR_INFO,
    obs_size=state_size(unseen=1),
)
