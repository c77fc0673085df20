"""Measures `benchmark_performance.py --robot NAME`: a robot on the GPU, by preset and number of robots.

    for each number of robots
        physics: a child for each preset, one on the CPU ─► burn-in ─► rounds in turns
        training: the same
    ─► rows, each with its speed over the CPU's

Physics is what a rollout does without its policy: actions, substeps, rules, new episodes. Training is a run's epochs
(bench/gpu/training.py).
Children of one number of robots are built at the same time; one alone steps at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from metta_fast.bench.gpu.command import Turns, take_turns
from metta_fast.bench.harness.child_handle import Child, all_at_once
from metta_fast.bench.harness.report import Report
from metta_fast.bench.harness.rounds import headed
from metta_fast.bench.robots.cases import Case

Say = Callable[[str], None]
Save = Callable[[], None]
WORKER = (sys.executable, "-m", "metta_fast.bench.robots.child_program")


def measure(
    report: Report,
    groups: Sequence[Sequence[Case]],
    seconds: float,
    repeats: int,
    say: Say,
    save: Save,
    command: Sequence[str] = WORKER,
) -> None:
    """Adds a row for every case. A case that fails is a row with the reason; the others go on.

    Args:
        save: called after each group, so that an interrupted benchmark keeps its results so far.
    """
    for group in groups:
        say(f"building {'; '.join(case.name for case in group)}")
        with ExitStack() as closing:
            turns = {case.name: Turns(Child(case.name, beside=len(group), command=command)) for case in group}
            closing.callback(all_at_once, [one.child.close for one in turns.values()])
            all_at_once([partial(turns[case.name].build, case.message) for case in group])
            rounds, notes = take_turns(turns, seconds, repeats, headed(say, group[0].what))
            report.notes += [f"{group[0].what}: {note}" for note in notes]
            for case in group:
                _add(report, case, turns[case.name], rounds)
        save()


def _add(report: Report, case: Case, turn: Turns, rounds: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Adds a case's row."""
    known = {"what": case.what, "preset": case.preset, "envs": case.envs}
    if turn.failed:
        report.rows.append({"name": case.name, **known, "failed": turn.failed.why, "n": 0})
        return
    speeds = [one["steps_per_s"] for one in rounds[case.name]]
    report.add_row(
        case.name,
        speeds,
        **known,
        build_s=turn.ready.get("build_s"),
        memory_mib=rounds[case.name][-1].get("memory_mib"),
        settings=turn.ready.get("settings"),
    )
    cpu = next((row for row in report.rows[::-1] if row["what"] == case.what and not row["preset"]), None)
    if case.preset and cpu is not None and "failed" not in cpu:
        report.rows[-1]["times_cpu"] = report.rows[-1]["steps_per_s"] / cpu["steps_per_s"]
    report.notes += [note for note in turn.ready.get("notes") or () if note not in report.notes]
