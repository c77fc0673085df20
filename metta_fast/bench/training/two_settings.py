"""Compares training in two settings, in turns; by default the performance guide's `original` and `ultra_fast`.

    python benchmark_performance.py                     # hardware=original against hardware=ultra_fast
    python benchmark_performance.py --a "hardware=cpu" --b "hardware=cpu policy.core=lstm"
    python benchmark_performance.py --return 1.0        # also measure the time to that mean return

Both sides train the same environment and policy unless their overrides differ, each in a process of its own (reasons:
side.py). A step is one action of one agent that is trained on. Everything counts: stepping, inference, copies,
advantages, updates, and a run's work at each epoch's end.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from metta_fast.bench.harness.other_load import DISTURBED, LIMIT, OtherLoad
from metta_fast.bench.harness.report import Report, returned
from metta_fast.bench.harness.rounds import in_turns
from metta_fast.bench.training.side import Side, composed_side
from metta_fast.contracts.errors import UserError

BASE = ("env=grid_bench",)
"""Overrides of both sides, before their own."""
ORIGINAL, ULTRA_FAST = "hardware=original", "hardware=ultra_fast"


@dataclass(frozen=True)
class Comparison:
    """Two settings to compare, and how long to measure."""

    a: str = ORIGINAL
    b: str = ULTRA_FAST
    seconds: float = 10.0
    """Least seconds per side and round; a round is whole epochs."""
    repeats: int = 5
    target: float | None = None
    """Mean return: also measure the time until an epoch reaches it."""
    limit: float = 300.0
    """Seconds after which a side that has not reached `target` gives up."""


def compare(report: Report, comparison: Comparison, say: Callable[[str], None]) -> None:
    """Runs the comparison and adds its rows and ratio to the report."""
    texts = {"A": comparison.a, "B": comparison.b}
    for letter, text in texts.items():
        check_side(letter, text)
    with ExitStack() as stack:
        sides = []
        for letter, text in texts.items():
            say(f"{letter}: {text or '(defaults)'}: building")
            side = stack.enter_context(Side(letter, side_words(letter, text)))
            for note in side.ready["notes"]:
                say(f"{letter}: {note}")
            burnt = side.burn_in(comparison.seconds)
            say(f"{letter}: burn-in of {burnt['epochs']} epochs, {burnt['seconds']:.1f} s")
            sides.append(side)
        results, notes = in_turns(
            [partial(side.round, comparison.seconds) for side in sides], comparison.repeats, say
        )
    report.notes += notes
    for letter, side, rounds in zip(texts, sides, results, strict=True):
        add_side(report, f"{letter}: {texts[letter] or 'defaults'}", side, rounds)
    report.add_ratio(
        "B / A", [one["steps_per_s"] for one in results[1]], [one["steps_per_s"] for one in results[0]]
    )
    if comparison.target is not None:
        for row, (letter, text) in zip(report.rows, texts.items(), strict=True):
            with Side(letter, side_words(letter, text)) as side:
                row["to_return"] = reached(report, side, comparison.target, comparison.limit)
            say(f"{letter}: to a return of {comparison.target:g}: {returned(row['to_return'])}")


def add_side(report: Report, name: str, side: Side, rounds: list[dict[str, Any]], **more: Any) -> None:
    """Adds the row of a side: speeds of its rounds, phases, settings, and `more`."""
    phases: dict[str, float] = {}
    for one in rounds:
        for phase, seconds in one["phases"].items():
            phases[phase] = phases.get(phase, 0.0) + seconds
    busy = [one["gpu_utilization"] for one in rounds if one["gpu_utilization"] is not None]
    report.add_row(
        name,
        [one["steps_per_s"] for one in rounds],
        phases=phases,
        gpu_utilization=sum(busy) / len(busy) if busy else None,
        settings=side.ready["settings"],
        **more,
    )


def reached(report: Report, side: Side, target: float, limit: float) -> dict[str, Any]:
    """Trains a side from fresh weights to a mean return.

    Building does not count, compiling does. If other programs disturb it, it is not repeated, and the report notes it.

    Returns:
        {"target", "limit", "reached", "seconds", "steps", "return"}.
    """
    watching = OtherLoad()
    found = side.learn(target, limit)
    used = watching.stop()
    if not used.quiet:
        report.notes.append(
            f"{side.name}: its time to a return of {target:g} was {DISTURBED}, by {used} (limit {LIMIT})"
        )
    return {"target": target, "limit": limit} | found


def check_side(letter: str, text: str) -> None:
    """Composes a side's overrides, so that a mistake in B is reported before A is measured. Raises UserError."""
    try:
        composed_side(side_words(letter, text))
    except UserError as error:
        raise UserError(f"--{letter.lower()} {text!r}: {error}") from error


def side_words(letter: str, text: str) -> list[str]:
    """Returns the arguments of a side: BASE and its overrides, split like in a shell."""
    try:
        return [*BASE, *shlex.split(text)]
    except ValueError as error:
        raise UserError(f"{error}; quote it as on a command line") from None
