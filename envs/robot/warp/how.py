"""Says how a robot is simulated: what its task's header reads, and how much room a world has. No torch.

how = with_room(how_of(RobotFactory("ant")))
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from metta_fast.envs.robot.warp._rules import task_facts
from metta_fast.envs.robot.warp.draw.context import Drawn
from metta_fast.envs.robot.warp.own_fields import own_names
from metta_fast.envs.robot.warp.presets import apply
from metta_fast.envs.robot.warp.robot import Robot
from metta_fast.envs.robot.warp.room import room_for
from metta_fast.envs.robot.warp.simulation import DERIVED, How, quiet_mujoco

TASKS = Path(__file__).resolve().parents[1] / "tasks"


def how_of(factory: Robot, drawn: Drawn | None = None, *, looks: bool = False) -> How:
    """Returns what is simulated of a robot, and what MuJoCo Warp draws of it. looks: pictures are made of it."""
    task = factory.task.name
    reads = fields_read(TASKS / f"{task}.h") & set(DERIVED)
    if factory.privileged:
        reads |= {"qfrc_actuator"}
    return How(
        factory.model.path,
        frame_skip=factory.frame_skip,
        preset=factory.preset or "exact",
        forces=task_facts(task)[1] or factory.privileged,
        reads=tuple(sorted(reads)),
        njmax=factory.njmax,
        nconmax=factory.nconmax,
        own=own_names(factory.random, drawn=looks or drawn is not None),
        drawn=drawn,
    )


def fields_read(header: Path) -> set[str]:
    """Returns every word after . or -> in a task's header and in what it includes of its folder: at least the fields of
    mf_physics that it reads."""
    found: set[str] = set()
    todo, seen = [header], set()
    while todo:
        file = todo.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        text = file.read_text(encoding="utf-8")
        found.update(re.findall(r"(?:->|\.)\s*(\w+)", text))
        todo += [file.parent / name for name in re.findall(r'#include\s+"(\w+\.h)"', text)]
    return found


@functools.cache
def with_room(how: How) -> How:
    """Returns the same with the njmax and nconmax that a trial finds, unless they are given."""
    if how.njmax is not None and how.nconmax is not None:
        return how
    import mujoco

    with quiet_mujoco():
        mjm = mujoco.MjModel.from_xml_path(how.path)
        apply(mjm, how.preset)
        rows, contacts = room_for(mjm)
    return how._replace(njmax=how.njmax or rows, nconmax=how.nconmax or contacts)
