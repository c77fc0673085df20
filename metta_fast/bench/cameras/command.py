"""Measures `benchmark_performance.py --camera NAME`: robots that see pictures.

    for each renderer and number of robots
        children: physics; for each size camera, policy ─► burn-in ─► rounds in turns
    ─► a row for each size: steps a second of each part, and shares of the time

The children of a group are built at the same time; one alone measures at a time.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from metta_fast.bench.cameras.cases import Group
from metta_fast.bench.gpu.command import Turns, take_turns
from metta_fast.bench.harness.child_handle import Child, all_at_once
from metta_fast.bench.harness.report import Report
from metta_fast.bench.harness.rounds import headed

Say = Callable[[str], None]
WORKER = (sys.executable, "-m", "metta_fast.bench.cameras.child_program")


def measure(
    report: Report,
    groups: Sequence[Group],
    seconds: float,
    repeats: int,
    say: Say,
    save: Callable[[], None],
    command: Sequence[str] = WORKER,
) -> None:
    """Adds a row for every group and size. A side that fails leaves its reason in the row; the others go on.

    Args:
        save: called after each group, so that an interrupted benchmark keeps its results so far.
    """
    for group in groups:
        say(f"building {group.name}")
        with ExitStack() as closing:
            turns = {
                side.name: Turns(Child(side.name, beside=len(group.sides), command=command))
                for side in group.sides
            }
            closing.callback(all_at_once, [one.child.close for one in turns.values()])
            all_at_once([partial(turns[side.name].build, side.message) for side in group.sides])
            rounds, notes = take_turns(turns, seconds, repeats, headed(say, group.name))
        report.notes += [f"{group.name}: {note}" for note in notes]
        for size in sorted({side.size for side in group.sides if side.size}):
            _add(report, group, size, turns, rounds)
        save()


def _add(
    report: Report,
    group: Group,
    size: int,
    turns: Mapping[str, Turns],
    rounds: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    """Adds the row of one size: {"parts": {part: {"steps_per_s", "low", "high"}}, "shares": {…}, "failed": {…}}."""
    parts, failed = {}, {}
    for side in group.sides:
        if side.size not in (0, size):
            continue
        if (failure := turns[side.name].failed) is not None:
            failed[side.part] = failure.why
            continue
        found = rounds[side.name]
        parts[side.part] = _figures([one["steps_per_s"] for one in found])
        if side.part == "policy":
            parts["training"] = _figures([one["training_steps_per_s"] for one in found])
    row: dict[str, Any] = {
        "name": f"{group.name}, {size} px",
        "renderer": group.renderer,
        "envs": group.envs,
        "size": size,
        "parts": parts,
    }
    if failed:
        row["failed"] = failed
    else:
        row["shares"] = shares(*(parts[part]["steps_per_s"] for part in ("physics", "camera", "policy")))
    report.rows.append(row)


def shares(physics: float, camera: float, policy: float) -> dict[str, float]:
    """Returns the share of a rollout's time that each part adds. Their speeds are given, in steps a second.

    A part that costs nothing beside the others, because it is done at the same time, has 0.
    """
    ends = [1 / physics, max(1 / camera, 1 / physics)]
    ends.append(max(1 / policy, ends[1]))
    return {
        "physics": ends[0] / ends[2],
        "camera": (ends[1] - ends[0]) / ends[2],
        "network": 1 - ends[1] / ends[2],
    }


def _figures(speeds: Sequence[float]) -> dict[str, float]:
    return {"steps_per_s": statistics.median(speeds), "low": min(speeds), "high": max(speeds)}
