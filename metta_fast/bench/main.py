"""Runs benchmark_performance.py, which is also `metta-fast bench`: measures what was asked for, and reports it.

    arguments.py ─► mode ─► the module that measures ─► Report ─► table, --json, --plot (charts/chart.py)

Measuring modules are imported only when they are needed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metta_fast.bench.arguments import CAMERA, ROBOT, check, length, mode, parser
from metta_fast.bench.cameras.table import CameraReport
from metta_fast.bench.charts import chart
from metta_fast.bench.gpu.report import GpuReport
from metta_fast.bench.harness.machine import describe
from metta_fast.bench.harness.report import Report
from metta_fast.bench.robots.table import RobotReport
from metta_fast.bench.stepping import vector_sides
from metta_fast.bench.stepping.command import StepReport
from metta_fast.bench.stepping.vector_table import VectorReport
from metta_fast.bench.training.ablate import LadderReport, ablate
from metta_fast.bench.training.side import SideError
from metta_fast.bench.training.two_settings import Comparison, compare
from metta_fast.contracts.errors import UserError
from metta_fast.machine.output import run_command
from metta_fast.storage.user_files import read_text

REPORTS: dict[str, type[Report]] = {
    "gpu": GpuReport,
    "env": StepReport,
    "ablate": LadderReport,
    "vector": VectorReport,
    ROBOT: RobotReport,
    CAMERA: CameraReport,
}
"""Mode → its own kind of report, where rows and ratios do not suffice."""


def main(words: Sequence[str] | None = None) -> int:
    """Runs a benchmark; returns 0, 2 after a user's mistake, or 1 if a measured process failed."""
    given = list(sys.argv[1:] if words is None else words)
    return run_command(lambda: _measure(given))


def _measure(words: list[str]) -> int:
    try:
        given = parser().parse_args(words)
        check(given)
        what = mode(given)
        if given.figures is not None:
            chart.draw(_read(given.figures), given.plot)
            return 0
        if what == "find_batch":
            from metta_fast.bench.sizing.find_batch import find_batch

            print(find_batch(given.overrides, _say))
            return 0
        if what in ("gpu", ROBOT):
            from metta_fast.bench.gpu.command import check_machine

            check_machine(option=f"--{what}")
        command = shlex.join(["python", "benchmark_performance.py", *words])
        report = REPORTS.get(what, Report)(describe(), command)
        run(what, given, report)
        if given.json is not None:
            report.write(given.json)
        print(report.show())
        if given.plot is not None:
            chart.draw(report.to_json(), given.plot)
    except SideError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def run(what: str, given: argparse.Namespace, report: Report) -> None:
    """Measures mode `what` into `report`; progress goes to stderr."""
    rounds = length(given)
    seconds, repeats = rounds.seconds, rounds.repeats

    def save() -> None:
        if given.json is not None:
            report.write(given.json)

    if isinstance(report, GpuReport):
        from metta_fast.bench.gpu import command as gpu

        gpu.measure(
            report,
            tables=given.gpu,
            scale=given.gpu_scale,
            quick=given.quick,
            seconds=seconds,
            repeats=repeats,
            say=_say,
            save=save,
        )
    elif what == "env":
        from metta_fast.bench.stepping import command as stepping

        todo = stepping.cases(
            given.threads or ("all" if given.quick else stepping.THREADS),
            given.envs or ("16" if given.quick else stepping.ENVS),
        )
        stepping.measure(report, given.env, todo, seconds, repeats, _say)
    elif what == ROBOT:
        from metta_fast.bench.robots import cases
        from metta_fast.bench.robots import command as robots

        groups = cases.cases(given.robot, given.envs or (cases.QUICK_ENVS if given.quick else cases.ENVS))
        robots.measure(report, groups, seconds, repeats, _say, save)
    elif what == CAMERA:
        from metta_fast.bench.cameras import cases as seen
        from metta_fast.bench.cameras import command as cameras

        found, notes = seen.groups(
            given.camera,
            given.envs or (seen.QUICK_ENVS if given.quick else seen.ENVS),
            given.sizes or (seen.QUICK_SIZES if given.quick else seen.SIZES),
            given.overrides,
        )
        report.notes += notes
        cameras.measure(report, found, seconds, repeats, _say, save)
    elif what == "sb3":
        from metta_fast.bench.training.sb3_robot import compare_sb3

        compare_sb3(report, given.sb3, seconds, repeats, _say)
    elif what == "simulator":
        from metta_fast.bench.stepping.cpu_simulator import simulate

        simulate(report, seconds, repeats, _say, quick=given.quick)
    elif what == "vector":
        from metta_fast.bench.stepping.vector_backends import overhead
        from metta_fast.bench.stepping.vector_peers import measure

        assert isinstance(report, VectorReport)
        envs = given.envs or (vector_sides.QUICK if given.quick else None)
        wanted = vector_sides.wanted(given.vector_env, given.vector_rival, envs)
        if wanted.own_cost:
            overhead(report, seconds, repeats, _say)
        measure(report, wanted, seconds, repeats, _say)
    elif what == "advantage":
        from metta_fast.bench.sizing import advantage

        advantage.measure(report, seconds, repeats, _say, quick=given.quick)
    elif what == "train":
        from metta_fast.bench.training.peers import beside

        beside(report, given.overrides, seconds, repeats, _say)
    else:
        comparison = Comparison(given.a, given.b, seconds, repeats, given.target, given.limit)
        if isinstance(report, LadderReport):
            ablate(report, comparison, _say)
        else:
            compare(report, comparison, _say)


def _read(path: Path) -> dict[str, Any]:
    """Reads a report's JSON document. Raises UserError if it cannot be read or is not one."""
    text = read_text(path, f"--from {path}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--from {path}: expected a file written by --json: {error}") from error
    if not isinstance(document, dict) or "machine" not in document:
        raise UserError(f"--from {path}: expected a file written by --json, but it has no key 'machine'")
    return document


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
