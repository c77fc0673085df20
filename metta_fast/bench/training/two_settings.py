"""Training in two settings, in turns: by default the performance guide's `original` against `ultra_fast`.

    python benchmark_performance.py                     # hardware=original against hardware=ultra_fast
    python benchmark_performance.py --a "hardware=cpu" --b "hardware=cpu policy.core=lstm"
    python benchmark_performance.py --return 1.0        # also the time to that mean return

Both sides train the same environment and policy unless their overrides say otherwise, each in a process of
its own (side.py says why). A step is one action of one agent that is trained on; everything counts: stepping,
inference, copies, advantages, updates, and what a run does at each epoch's end.
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
from metta_fast.bench.training.side import Side
from metta_fast.contracts.errors import UserError

BASE = ("env=grid_bench",)
"""What both sides get before their own overrides."""
ORIGINAL, ULTRA_FAST = "hardware=original", "hardware=ultra_fast"


@dataclass(frozen=True)
class Comparison:
    """What to compare and how long."""

    a: str = ORIGINAL
    b: str = ULTRA_FAST
    seconds: float = 10.0
    """Per side and round, at least; a round is whole epochs."""
    repeats: int = 5
    target: float | None = None
    """A mean return: also measure the time until an epoch reaches it."""
    limit: float = 300.0
    """Seconds after which a side that has not reached `target` is given up."""


def compare(report: Report, comparison: Comparison, say: Callable[[str], None]) -> None:
    """Run the comparison and add its rows and ratio to the report."""
    texts = {"A": comparison.a, "B": comparison.b}
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
    """A row of a side's rounds: speeds, phases, settings, and `more`."""
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
    """Train a side from fresh weights to a mean return: {"target", "limit", "reached", "seconds", "steps", "return"}.

    Building is left out, compiling counts. It is not repeated where other programs disturb it: the report says so.
    """
    watching = OtherLoad()
    found = side.learn(target, limit)
    used = watching.stop()
    if not used.quiet:
        report.notes.append(
            f"{side.name}: its time to a return of {target:g} was {DISTURBED}, by {used} (limit {LIMIT})"
        )
    return {"target": target, "limit": limit} | found


def side_words(letter: str, text: str) -> list[str]:
    """The arguments of a side: BASE and its overrides, split as a shell does."""
    try:
        return [*BASE, *shlex.split(text)]
    except ValueError as error:
        raise UserError(f"--{letter.lower()} {text!r}: {error}; write it as on a command line") from None
