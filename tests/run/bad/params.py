"""Parameters of environments and features with values of other kinds: refused in one message, or used."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from tests.run.bad.case import Case
from tests.run.bad.keys import TINY

VALUES = (
    "3",
    "-1",
    "0",
    "abc",
    "''",
    "[a]",
    "[]",
    "{a:1}",
    "{}",
    "null",
    "true",
    "nan",
    "1e300",
    "[[1]]",
    "{a:{b:[1]}}",
    "1e9",
)
TASKS = ("ant", "hopper", "pusher")


def names() -> Iterator[tuple[str, str]]:
    """Yields (recipe, key) of every parameter."""
    from metta_fast.envs.grid.config import grid_config
    from metta_fast.envs.registry.ours import ROBOT_KEYS
    from metta_fast.envs.robot.env import find_task

    taken = ("num_agents", "observation", "max_steps", "limit_is_terminal")
    for name in inspect.signature(grid_config).parameters:
        if name not in taken:
            yield "grid", f"env.params.{name}"
    for name in ("goal", "dtype"):
        yield "counter", f"env.params.{name}"
    for task in TASKS:
        for name in (*ROBOT_KEYS, *find_task(task).options):
            yield task, f"env.params.{name}"
    for feature in (
        "contrastive",
        "kickstart",
        "prioritized_replay",
        "profiler",
        "reward_centering",
        "weight_analysis",
    ):
        module = __import__(f"metta_fast.features.{feature}", fromlist=["add"])
        for name in list(inspect.signature(module.add).parameters)[1:]:
            yield "counter", f"features.{feature}.{name}"


def cases() -> Iterator[Case]:
    """Yields the cases; every second value of each parameter, in turns."""
    for number, (recipe, key) in enumerate(names()):
        agents = ("env.agents_per_env=1",) if recipe in TASKS else ()
        for value in VALUES[number % 2 :: 2]:
            words = (*TINY, f"env={recipe}", *agents, "trainer.batch_size=64", f"{key}={value}")
            yield Case(words, rc=(0, 2), lines=6)
