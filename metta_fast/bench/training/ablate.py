"""Goes from one setting to another one change at a time, and measures what each change brings.

    python benchmark_performance.py --ablate --plot ladder.png
    python benchmark_performance.py --ablate --b "hardware=auto" --return 0.5

    compose(a), compose(b) ─► ladder.py: changes ─► a process for each step, burnt in (side.py) ─► rounds in turns

A step keeps all earlier changes. A round is one turn of every step, so that a step, the previous one and the first are
measured close together in time. A change without effect on this machine (e.g. compiling on a CPU) is noted and not
measured. The effect of the intervals is estimated (sizing/interval_cost.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from metta_fast.bench.harness.report import Report, returned, show_count
from metta_fast.bench.harness.rounds import in_turns
from metta_fast.bench.sizing.interval_cost import share
from metta_fast.bench.training.ladder import INTERVALS, ladder, mixed
from metta_fast.bench.training.side import Side, composed_side
from metta_fast.bench.training.two_settings import Comparison, add_side, reached, side_words
from metta_fast.config.keys import Config, get, keys, shown
from metta_fast.contracts.errors import UserError
from metta_fast.resolve.compose import Composed
from metta_fast.resolve.resolve import resolve

Say = Callable[[str], None]
FIRST = "start"
"""Name of the step before the first change; its row has side A's name if side A is one profile."""
IDLE: dict[str, Callable[[Config], bool]] = {
    "trainer.compile_mode": lambda config: not config.trainer.compile,
    "trainer.tf32": lambda config: config.trainer.device == "cpu",
    "vector.num_workers": lambda config: config.vector.backend != "workers",
}
"""Keys → whether they have no effect in a configuration; a change between two such configurations does not count."""


@dataclass(frozen=True)
class Step:
    """A configuration between side A and side B."""

    name: str
    paths: tuple[str, ...]
    """Keys that have side B's values."""
    config: Config
    """Resolved for this machine."""
    changes: Mapping[str, str]
    """Resolved keys that changed in this step: key → `old → new`."""


class LadderReport(Report):
    """A Report whose rows also have `changes` {key: "old → new"}, and ratios except in the first row.

    `gain` is the speed relative to the previous step, `total` relative to the first, each {"value", "low", "high"}.
    """

    def show(self) -> str:
        """Formats the table as plain text: a line for each step, and its changes below."""
        lines = [self.head(), self.command, ""]
        width = max((len(row["name"]) for row in self.rows), default=4)
        target = next((row["to_return"]["target"] for row in self.rows if "to_return" in row), None)
        heads = f"{'times the previous step':>24}  {'the first':>9}"
        heads += "" if target is None else f"  to a return of {target:g}"
        lines.append(f"{'':{width}}  {'steps/s':>10}  {'low':>10}  {'high':>10}  {heads}")
        for row in self.rows:
            gain, total = row.get("gain"), row.get("total")
            words = "  ".join(show_count(row[key]) for key in ("steps_per_s", "low", "high"))
            spread = f"({gain['low']:.2f} to {gain['high']:.2f})" if gain else ""
            words += f"  {gain['value']:8.2f} {spread:>15}" if gain else f"  {'':24}"
            words += f"  {total['value']:9.2f}" if total else f"  {'':9}"
            if "to_return" in row:
                words += f"  {returned(row['to_return'])}"
            lines.append(f"{row['name']:{width}}  {words}".rstrip())
            lines += [f"{'':{width}}    {path} {change}" for path, change in row["changes"].items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def steps(a: Composed, b: Composed) -> list[Step]:
    """Returns the steps from a to b, resolved for this machine.

    Raises:
        UserError: a and b are the same, or a step cannot run; the message names it.
    """
    changes = ladder(a, b)
    if not changes:
        raise UserError("--ablate goes from side A to side B, but they are the same; change --a or --b")
    before = resolve(a).config
    found = [Step(FIRST, (), before, {})]
    paths: tuple[str, ...] = ()
    for change in changes:
        paths += change.paths
        try:
            after = resolve(mixed(a, b, paths)).config
        except UserError as error:
            raise UserError(
                f"--ablate: no run is possible after the change of {change.name}: {error}"
            ) from None
        found.append(Step(change.name, paths, after, differences(before, after)))
        before = after
    return found


def differences(before: Config, after: Config) -> dict[str, str]:
    """Returns the keys whose values differ and have an effect: key → `old → new`."""
    found = {}
    for path in keys():
        old, new = get(before, path), get(after, path)
        idle = IDLE.get(path, lambda config: False)
        if old != new and not (idle(before) and idle(after)):
            found[path] = f"{shown(old)} → {shown(new)}"
    return found


def measured(found: Sequence[Step]) -> list[Step]:
    """Returns the steps to measure: those with an effect on this machine, without that of the intervals."""
    return [step for step in found if step.name == FIRST or (step.changes and step.name != INTERVALS)]


def ablate(report: LadderReport, comparison: Comparison, say: Say) -> None:
    """Measures the steps from `comparison.a` to `comparison.b`, and adds rows and ratios to the report."""
    words = {letter: side_words(letter, text) for letter, text in (("A", comparison.a), ("B", comparison.b))}
    found = steps(*(composed_side(one) for one in words.values()))
    for step in found[1:]:
        if not step.changes:
            report.notes.append(f"{step.name}: changes nothing on this machine")
    run = measured(found)
    say(f"{len(run)} steps: {', '.join(step.name for step in run)}")
    costs: dict[str, float] = {}
    with ExitStack() as stack:
        sides = []
        for step in run:
            side = stack.enter_context(_side(step, words))
            burnt = side.burn_in(comparison.seconds)
            say(f"{step.name}: burn-in of {burnt['epochs']} epochs, {burnt['seconds']:.1f} s")
            sides.append(side)
        results, notes = in_turns(
            [partial(side.round, comparison.seconds) for side in sides], comparison.repeats, say
        )
        if found[-1].name == INTERVALS and found[-1].changes:
            costs = sides[-1].interval_costs(_intervals_of(found[-1]))
    report.notes += notes
    names = [_first_name(comparison.a), *(step.name for step in run[1:])]
    for name, step, side, rounds in zip(names, run, sides, results, strict=True):
        add_side(report, name, side, rounds, changes=dict(step.changes))
    speeds = [[one["steps_per_s"] for one in rounds] for rounds in results]
    if costs:
        speeds.append(_intervals(report, found, speeds[-1], costs))
    add_gains(report, speeds)
    if comparison.target is not None:
        for step, row in zip(run, report.rows, strict=False):  # the estimated row has no run
            with _side(step, words) as side:
                row["to_return"] = reached(report, side, comparison.target, comparison.limit)
            say(f"{step.name}: to a return of {comparison.target:g}: {returned(row['to_return'])}")


def _first_name(text: str) -> str:
    """Returns `original` if side A is `hardware=original`, else FIRST."""
    profile = text.removeprefix("hardware=")
    return profile if profile.isidentifier() else FIRST


def _side(step: Step, words: Mapping[str, Sequence[str]]) -> Side:
    return Side(step.name, words["A"], toward=words["B"], paths=step.paths)


def _intervals_of(step: Step) -> list[str]:
    """Returns the names of the changed intervals: "replay" for `run.replay_interval`."""
    return [path.removeprefix("run.").removesuffix("_interval") for path in step.changes]


def _intervals(
    report: LadderReport, found: Sequence[Step], speeds: Sequence[float], costs: Mapping[str, float]
) -> list[float]:
    """Adds the estimated row of the intervals: the last measured speeds, scaled by the time that the intervals take."""
    before, after = found[-2].config, found[-1].config
    batch = after.trainer.batch_size
    epoch_s = batch / statistics.median(speeds)
    old, new = share(before.run, costs, epoch_s), share(after.run, costs, epoch_s)
    estimated = [speed * (1 + old) / (1 + new) for speed in speeds]
    report.add_row(found[-1].name, estimated, changes=dict(found[-1].changes), reckoned=True)
    each = ", ".join(f"{name} {1e3 * cost:.3g} ms" for name, cost in costs.items())
    report.notes.append(
        f"{INTERVALS}: estimated, not measured: one of each takes {each}; at this speed they cost {100 * old:.2g} % of "
        f"the training's time before and {100 * new:.2g} % after (measured rows are without them)"
    )
    return estimated


def add_gains(report: LadderReport, speeds: Sequence[Sequence[float]]) -> None:
    """Adds the ratios of each row to the previous and the first one, round by round.

    Args:
        speeds: for each row, the steps per second of its rounds.
    """
    for i in range(1, len(speeds)):
        row = report.rows[i]
        for key, below, name in (("gain", i - 1, "the previous step"), ("total", 0, "the first")):
            report.add_ratio(f"{row['name']} / {name}", speeds[i], speeds[below])
            row[key] = {k: report.ratios[-1][k] for k in ("value", "low", "high")}
