"""Says what the GPU's side reads of a robot's factory (envs/robot/env.py: RobotFactory)."""

from __future__ import annotations

from typing import Protocol

from metta_fast.contracts.env import Array, EnvSpec
from metta_fast.envs.robot.randomize import Record
from metta_fast.envs.robot.tasks.task import Task


class Model(Protocol):
    """A MuJoCo model."""

    @property
    def path(self) -> str:
        """Its MJCF file."""
        ...


class Robot(Protocol):
    """A task with its options, on a model."""

    task: Task
    spec: EnvSpec
    record: Array
    """NAME_params in doubles, of Task.record."""
    obs_size: int
    stat_of: tuple[int, ...]
    """Index into task.info of each statistic but the last two, `warnings` and `unstable`."""
    max_steps: int
    frame_skip: int
    limit_is_terminal: bool
    on_unstable: str
    privileged: bool
    preset: str | None
    """None: exact."""
    random: Record | None
    """What differs from the model in each episode; None: nothing."""
    njmax: int | None
    nconmax: int | None

    @property
    def model(self) -> Model:
        """The model."""
        ...
