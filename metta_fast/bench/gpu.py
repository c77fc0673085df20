"""`benchmark_performance.py --gpu`: training end to end, its parts, the engine alone; `--gpu-scale`: the scale curve.

    gpu_cases.py ─► gpu_child.py ══ a process for each configuration ══► gpu_worker.py ─► gpu_train.py
                         │                                                             ├─► gpu_parts.py, gpu_plain.py
                         ▼                                                             └─► gpu_simulator.py
                     in turns ─► gpu_report.py: tables, JSON; gpu_chart.py: SVG

Configurations that are compared are built at the same time and then measured in turns, one at a time. What cannot be
measured is one line of the table; the rest goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from metta_fast import hardware
from metta_fast.bench.gpu_cases import PARTS, SHAPES, SIMULATORS, VARIANTS, Point, scale_points
from metta_fast.bench.gpu_child import BUILD_LIMIT_S, Child, Failed, all_at_once
from metta_fast.bench.gpu_parts_table import with_shares
from metta_fast.bench.gpu_report import GpuReport, Row, epochs_row, ratio, rounds_row
from metta_fast.bench.rounds import headed, in_turns
from metta_fast.errors import UserError
from metta_fast.gpu_engine import card_obstacle

Say = Callable[[str], None]
TOGETHER = 4
"""Configurations of the scale curve that are built at the same time."""
SECONDS, QUICK_SECONDS = 0.5, 0.3
QUICK_REPEATS = 2


def check_machine(machine: hardware.Machine | None = None) -> None:
    """Raises UserError where `--gpu` has nothing to measure."""
    machine = machine or hardware.detect()
    if not machine.gpus:
        why = machine.notes[0] if machine.notes else "no GPU was found that the installed torch can use"
        raise UserError(
            f"--gpu measures environments, policy and update on an NVIDIA GPU: {why}; without one, "
            "--simulator measures the environments on the CPU"
        )
    missing = card_obstacle(machine)
    if missing:
        raise UserError(f"--gpu: {missing.why}; {missing.cure}")


class Turns:
    """One configuration in its child; after a failure it takes no more turns."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.ready: Row = {}
        self.failed: Failed | None = None

    def ask(self, **message: Any) -> Row:
        """The child's answer, or {} once it has failed."""
        if self.failed is None:
            try:
                return self.child.ask(**message)
            except Failed as failed:
                self._fail(failed)
        return {}

    def build(self, what: Mapping[str, Any]) -> None:
        self.ready = self.ask(limit_s=BUILD_LIMIT_S, do="build", **what)

    def round(self, seconds: float) -> Row:
        return self.ask(do="round", seconds=seconds) or {"steps_per_s": 0.0}

    def why(self) -> Row:
        """What stands in a row in place of figures."""
        assert self.failed is not None
        return {"failed": self.failed.why, "printed": self.failed.printed}

    def _fail(self, failed: Failed) -> None:
        self.failed = failed
        self.child.close()  # it must not go on computing beside the others


@contextmanager
def built(cases: Mapping[str, Mapping[str, Any]], say: Say) -> Iterator[dict[str, Turns]]:
    """Children that have built their cases (messages of gpu_worker.build), all at the same time."""
    turns = {name: Turns(Child(name, beside=len(cases))) for name in cases}
    try:
        say(f"building {', '.join(cases)}")
        all_at_once([partial(one.build, cases[name]) for name, one in turns.items()])
        for name, one in turns.items():
            if one.failed:
                say(f"{name}: failed: {one.failed.why}")
        yield turns
    finally:
        all_at_once([one.child.close for one in turns.values()])


def take_turns(
    turns: Mapping[str, Turns], seconds: float, repeats: int, say: Say
) -> tuple[dict[str, list[Row]], list[str]]:
    """Rounds of each that has not failed, in turns; and notes on disturbed ones."""
    alive = {name: one for name, one in turns.items() if one.failed is None}
    if not alive:
        return {}, []
    results, notes = in_turns([partial(one.round, seconds) for one in alive.values()], repeats, say)
    for name, one in alive.items():
        if one.failed:
            say(f"{name}: failed: {one.failed.why}")
    return dict(zip(alive, results, strict=True)), notes


def trained(
    cases: Mapping[str, Sequence[str]], seconds: float, repeats: int, say: Say
) -> tuple[dict[str, Row], list[str]]:
    """Training runs by name → overrides, in turns: a row for each."""
    messages = {name: {"kind": "train", "overrides": list(words)} for name, words in cases.items()}
    rows: dict[str, Row] = {}
    with built(messages, say) as turns:
        rounds, notes = take_turns(turns, seconds, repeats, say)
        for name, one in turns.items():
            use = one.ask(do="utilization")
            rows[name] = {"overrides": " ".join(cases[name])}
            if one.failed:
                rows[name] |= one.why()
            else:
                rows[name] |= epochs_row(rounds[name]) | use | one.ready
                notes += [f"{name}: {note}" for note in one.ready["notes"]]
    return rows, notes


def measure_training(
    report: GpuReport, shapes: Mapping[str, Sequence[str]], seconds: float, repeats: int, say: Say
) -> None:
    """Each shape beside the variants of it."""
    for shape, words in shapes.items():
        cases = {shape: words} | {name: [*words, *more] for name, more in VARIANTS.items()}
        rows, notes = trained(cases, seconds, repeats, headed(say, shape))
        own = rows.pop(shape)
        against = []
        for name, row in rows.items():
            both = "failed" not in row and "failed" not in own
            against.append({"name": name} | row | (ratio(own, row) if both else {}))
        report.training.append({"name": shape} | own | {"against": against})
        report.notes += notes


def measure_parts(report: GpuReport, seconds: float, repeats: int, say: Say) -> None:
    """Parts of the epoch, and the engine alone."""
    cases: dict[str, dict[str, Any]] = {
        name: {"kind": "parts", "overrides": list(words)} for name, words in PARTS.items()
    }
    with built(cases, headed(say, "parts")) as turns:
        for name, one in turns.items():
            measured = one.ask(do="measure")
            row = {"run": name} | one.why() if one.failed else with_shares(name, measured)
            report.parts.append(row)
            say(f"parts of {name}: " + ("failed" if one.failed else "measured"))
    steppers: dict[str, dict[str, Any]] = {
        one.name: {
            "kind": "simulator",
            "recipe": one.recipe,
            "observation": one.observation,
            "num_envs": one.num_envs,
        }
        for one in SIMULATORS
    }
    with built(steppers, headed(say, "simulator")) as turns:
        rounds, notes = take_turns(turns, seconds, repeats, headed(say, "simulator"))
        report.notes += notes
        for name, one in turns.items():
            figures = one.why() if one.failed else rounds_row(rounds[name]) | one.ready
            report.simulator.append({"name": name} | figures)


def measure_scale(
    report: GpuReport, seconds: float, repeats: int, say: Say, points: Sequence[Point] | None = None
) -> None:
    """One quantity varied at a time."""
    points = scale_points() if points is None else points
    for begin in range(0, len(points), TOGETHER):
        some = points[begin : begin + TOGETHER]
        rows, notes = trained(
            {one.name: one.overrides for one in some}, seconds, repeats, headed(say, "scale")
        )
        report.scale += [{"line": one.line, "value": one.value} | rows[one.name] for one in some]
        report.notes += notes


def measure(
    report: GpuReport,
    *,
    tables: bool,
    scale: bool,
    quick: bool,
    seconds: float | None,
    repeats: int,
    say: Say,
) -> None:
    """Everything that was asked for, into `report`.

    Args:
        tables: training, parts and engine. scale: the curve.
        quick: of `tables` the first shape only, short rounds.
    """
    if tables:
        first = dict([next(iter(SHAPES.items()))])
        length = seconds or (QUICK_SECONDS if quick else SECONDS)
        count = min(repeats, QUICK_REPEATS) if quick else repeats
        measure_training(report, first if quick else SHAPES, length, count, say)
        measure_parts(report, length, count, say)
    if scale:
        measure_scale(report, seconds or SECONDS, min(repeats, 3), say)
