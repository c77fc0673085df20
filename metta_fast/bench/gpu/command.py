"""Measures `benchmark_performance.py --gpu` (training, its parts, the engine alone) and `--gpu-scale` (scale curve).

    cases.py ─► harness/child_handle.py ══ one process per configuration ══► child_program.py ─► training.py
                         │                                                                    ├─► parts.py
                         ▼                                                                    └─► simulator.py
                     in turns ─► report.py: tables, JSON; charts/gpu_chart.py

Configurations to be compared are built at the same time, then measured in turns, one at a time. A configuration that
fails becomes one line of the table; the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

from metta_fast.bench.gpu.cases import PARTS, SHAPES, SIMULATORS, VARIANTS, scale_points
from metta_fast.bench.gpu.parts_table import parts_lines, with_shares
from metta_fast.bench.gpu.report import GpuReport, Row, epochs_row, ratio, rounds_row, training_lines
from metta_fast.bench.harness.child_handle import BUILD_LIMIT_S, Child, Failed, all_at_once
from metta_fast.bench.harness.rounds import headed, in_turns
from metta_fast.contracts.errors import UserError
from metta_fast.machine import hardware
from metta_fast.resolve.env_on_gpu import card_obstacle

Say = Callable[[str], None]
Save = Callable[[], None]
TOGETHER = 4
"""Configurations of the scale curve that are built at the same time."""
UTILIZATION_S = 1.2
"""Seconds over which utilisation is read; the driver samples it a few times a second."""
ON_THE_CPU = {"--gpu": "--simulator", "--robot": "--env NAME"}
SCALE_REPEATS = 3
"""Most rounds of a point of the scale curve."""


def check_machine(machine: hardware.Machine | None = None, option: str = "--gpu") -> None:
    """Checks that there is a GPU for the option. Raises UserError if not."""
    machine = machine or hardware.detect()
    if not machine.gpus:
        why = machine.notes[0] if machine.notes else "no GPU was found that the installed torch can use"
        raise UserError(
            f"{option} needs an NVIDIA GPU: {why}; {ON_THE_CPU[option]} measures the environments on the CPU instead"
        )
    missing = card_obstacle(machine)
    if missing:
        raise UserError(f"{option}: {missing.why}; {missing.cure}")


class Turns:
    """Handles one configuration in its child; after a failure it takes no more turns."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.ready: Row = {}
        self.failed: Failed | None = None

    def ask(self, **message: Any) -> Row:
        """Returns the child's answer, or {} after a failure."""
        if self.failed is None:
            try:
                return self.child.ask(**message)
            except Failed as failed:
                self._fail(failed)
        return {}

    def build(self, what: Mapping[str, Any]) -> None:
        """Builds the configuration in the child."""
        self.ready = self.ask(limit_s=BUILD_LIMIT_S, do="build", **what)

    def round(self, seconds: float) -> Row:
        """Measures one round; 0 steps per second after a failure."""
        return self.ask(do="round", seconds=seconds) or {"steps_per_s": 0.0}

    def why(self) -> Row:
        """Returns the failure, which a row holds in place of values."""
        assert self.failed is not None
        return {"failed": self.failed.why, "printed": self.failed.printed}

    def _fail(self, failed: Failed) -> None:
        self.failed = failed
        self.child.close()  # it must not keep computing while others are measured


@contextmanager
def built(cases: Mapping[str, Mapping[str, Any]], say: Say) -> Iterator[dict[str, Turns]]:
    """Yields children that have built their cases (messages of child_program.build), all at the same time."""
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
    """Measures rounds in turns of all that have not failed; also returns notes on disturbed rounds."""
    alive = {name: one for name, one in turns.items() if one.failed is None}
    if not alive:
        return {}, []
    results, notes = in_turns([partial(one.round, seconds) for one in alive.values()], repeats, say)
    for name, one in alive.items():
        if one.failed:
            say(f"{name}: failed: {one.failed.why}")
    return dict(zip(alive, results, strict=True)), notes


def trained(
    cases: Mapping[str, Sequence[str]], seconds: float, repeats: int, say: Say, driver: Container[str]
) -> tuple[dict[str, Row], list[str]]:
    """Measures training runs in turns and returns a row for each, with notes.

    Args:
        cases: name → overrides.
        driver: names of the runs whose GPU utilisation is read.
    """
    messages = {name: {"kind": "train", "overrides": list(words)} for name, words in cases.items()}
    rows: dict[str, Row] = {}
    with built(messages, say) as turns:
        rounds, notes = take_turns(turns, seconds, repeats, say)
        for name, one in turns.items():
            use = one.ask(do="utilization", seconds=UTILIZATION_S if name in driver else 0.0)
            rows[name] = {"overrides": " ".join(cases[name])}
            if one.failed:
                rows[name] |= one.why()
            else:
                rows[name] |= epochs_row(rounds[name]) | use | one.ready
                notes += [f"{name}: {note}" for note in one.ready["notes"]]
    return rows, notes


def measure_training(
    report: GpuReport,
    shapes: Mapping[str, Sequence[str]],
    seconds: float,
    repeats: int,
    say: Say,
    save: Save,
    quick: bool = False,
) -> None:
    """Measures each shape together with its variants.

    Args:
        quick: read the GPU's utilisation for the shape only.
    """
    for shape, words in shapes.items():
        cases = {shape: words} | {name: [*words, *more] for name, more in VARIANTS.items()}
        rows, notes = trained(cases, seconds, repeats, headed(say, shape), {shape} if quick else set(cases))
        own = rows.pop(shape)
        against = []
        for name, row in rows.items():
            both = "failed" not in row and "failed" not in own
            against.append({"name": name} | row | (ratio(own, row) if both else {}))
        report.training.append({"name": shape} | own | {"against": against})
        report.notes += [note if note.startswith(shape) else f"{shape}: {note}" for note in notes]
        say("\n".join(training_lines(report.training[-1])))
        save()


def measure_alone(report: GpuReport, seconds: float, repeats: int, say: Say, save: Save) -> None:
    """Measures the parts of an epoch, and the engine alone."""
    parts: dict[str, dict[str, Any]] = {
        name: {"kind": "parts", "overrides": list(words)} for name, words in PARTS.items()
    }
    engines = {one.name: {"kind": "simulator", **asdict(one)} for one in SIMULATORS}
    with built(parts | engines, headed(say, "parts and simulator")) as turns:
        for name in parts:
            one = turns[name]
            measured = one.ask(do="measure")
            if one.failed is None:
                report.notes += [f"parts of {name}: {note}" for note in one.ready["notes"]]
            report.parts.append({"run": name} | one.why() if one.failed else with_shares(name, measured))
            say("\n".join(parts_lines(report.parts[-1])))
            save()
        steppers = {name: turns[name] for name in engines}
        rounds, notes = take_turns(steppers, seconds, repeats, headed(say, "simulator"))
        report.notes += notes
        for name, one in steppers.items():
            figures = one.why() if one.failed else rounds_row(rounds[name]) | one.ready
            report.simulator.append({"name": name} | figures)
    save()


def measure_scale(report: GpuReport, seconds: float, repeats: int, say: Say, save: Save) -> None:
    """Measures the scale curve; a configuration shared by several lines is measured once."""
    points = scale_points()
    different = list({tuple(one.overrides): one for one in reversed(points)}.values())[::-1]
    found: dict[tuple[str, ...], Row] = {}
    for begin in range(0, len(different), TOGETHER):
        some = {one.name: one.overrides for one in different[begin : begin + TOGETHER]}
        rows, notes = trained(some, seconds, repeats, headed(say, "scale"), ())
        found |= {tuple(words): rows[name] for name, words in some.items()}
        report.notes += notes
        report.scale = [
            {"line": one.line, "value": one.value} | found[tuple(one.overrides)]
            for one in points
            if tuple(one.overrides) in found
        ]
        save()


def measure(
    report: GpuReport,
    *,
    tables: bool,
    scale: bool,
    quick: bool,
    seconds: float,
    repeats: int,
    say: Say,
    save: Save,
) -> None:
    """Measures everything that was asked for, into `report`.

    Args:
        tables: measure training, parts and engine.
        scale: measure the scale curve.
        quick: measure only the first shape of the tables.
        save: called after each addition, so that an interrupted benchmark keeps its results so far.
    """
    if tables:
        first = dict([next(iter(SHAPES.items()))])
        measure_training(report, first if quick else SHAPES, seconds, repeats, say, save, quick)
        measure_alone(report, seconds, repeats, say, save)
    if scale:
        measure_scale(report, seconds, min(repeats, SCALE_REPEATS), say, save)
