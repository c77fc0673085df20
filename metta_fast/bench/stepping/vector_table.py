"""Shows the figures of `--vector`: a table for each environment, one row for each number of environments.

    CartPole-v1, environment steps per second
     envs  ours                     Sync    Async  …   ours / best
        8  46.2k  serial           41.0k     9.2k  …   1.13 × Sync

Then our backends one by one. The JSON document also has "absent": [{"task", "envs", "peer", "why"}].
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from metta_fast.bench.harness.report import Report
from metta_fast.bench.stepping.vector_sides import SIDES, Side
from metta_fast.bench.stepping.vector_tasks import TASKS, Task

WHAT = "environment steps per second"


@dataclass
class VectorReport(Report):
    """A Report whose rows also have `task`, `envs`, `peer`, `column`, `library` ("": ours), and `chosen` for ours."""

    absent: list[dict[str, Any]] = field(default_factory=list)
    """What could not be measured."""

    def add_absent(self, task: Task, envs: int, side: Side, why: str) -> None:
        """Adds what could not be measured: `why` is one word for the table."""
        self.absent.append({"task": task.name, "envs": envs, "peer": side.name, "why": why, **_place(side)})

    def add_cell(
        self, task: Task, envs: int, speeds: Mapping[Side, Sequence[float]], chosen: Mapping[Side, str]
    ) -> None:
        """Adds the rows of one environment and number, and the ratio of `ours, auto` to the fastest other side.

        Args:
            speeds: steps per second of each round; a side that was not repeated has one.
            chosen: what steps the environments, of ours.
        """
        head = f"{task.title}, {envs} envs"
        for side, found in speeds.items():
            self.add_row(
                f"{head}, {side.name}",
                found,
                task=task.name,
                envs=envs,
                peer=side.name,
                chosen=chosen.get(side),
                **_place(side),
            )
        rivals = [side for side in speeds if side.library is not None]
        auto = next((side for side in speeds if side.library is None and side.variant == "auto"), None)
        if auto is None or not rivals:
            return
        best = max(rivals, key=lambda side: statistics.median(speeds[side]))
        above, below = speeds[auto], speeds[best]
        if len(above) == len(below):
            self.add_ratio(f"{head}: ours / {best.name}", above, below)
        else:  # one of them was not repeated
            low, high = min(above) / max(below), max(above) / min(below)
            value = statistics.median(above) / statistics.median(below)
            self.ratios.append(
                {"name": f"{head}: ours / {best.name}", "value": value, "low": low, "high": high}
            )
        self.ratios[-1] |= {"task": task.name, "envs": envs, "peer": best.name}

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON document."""
        return super().to_json() | ({"absent": self.absent} if self.absent else {})

    def show(self) -> str:
        """Formats the tables as plain text of at most 100 columns."""
        mine, rest = (
            [row for row in self.rows if "task" in row],
            [row for row in self.rows if "task" not in row],
        )
        own = Report(self.machine, self.command, rest).show() if rest else f"{self.head()}\n{self.command}"
        parts = [own]
        for task in TASKS.values():
            if any(row["task"] == task.name for row in mine):
                parts.append(self._table(task))
        if mine:
            parts.append(self._ours())
        parts.append("\n".join(f"note: {note}" for note in self.notes))
        return "\n\n".join(part for part in parts if part)

    def _table(self, task: Task) -> str:
        """Formats the table of one environment."""
        rows = [row for row in self.rows if row.get("task") == task.name]
        gone = [one for one in self.absent if one["task"] == task.name]
        shown = {one["column"] for one in [*rows, *gone] if one["library"]}
        others = {s.column: s.library.name for s in SIDES if s.library is not None and s.column in shown}
        columns = list(others)
        lines = [f"{task.title}, {WHAT}", " " * 26 + _libraries(others)]
        lines.append(
            f"{'envs':>5}  {'ours (auto)':19}" + "".join(f"{c:>9}" for c in columns) + "   ours / best"
        )
        for envs in sorted({row["envs"] for row in rows}):
            here = [row for row in rows if row["envs"] == envs]
            auto = next((row for row in here if row["peer"] == "ours, auto"), None)
            line = f"{envs:>5}  " + (
                f"{_short(auto['steps_per_s']):>6} {auto.get('chosen', ''):12}" if auto else f"{'failed':19}"
            )
            for column in columns:
                line += f"{self._cell(here, gone, envs, column):>9}"
            ratio = next((r for r in self.ratios if r.get("task") == task.name and r["envs"] == envs), None)
            if ratio:
                best = next(row["column"] for row in here if row["peer"] == ratio["peer"])
                line += f"   {ratio['value']:.2f} × {best}"
            lines.append(line.rstrip())
        return "\n".join(lines)

    def _cell(
        self, here: Sequence[dict[str, Any]], gone: Sequence[dict[str, Any]], envs: int, column: str
    ) -> str:
        """Formats the fastest side of a column, or why there is none."""
        found = [row["steps_per_s"] for row in here if row["column"] == column and row["library"]]
        if found:
            return _short(max(found))
        return next((one["why"] for one in gone if one["envs"] == envs and one["column"] == column), "")

    def _ours(self) -> str:
        """Formats the table of our backends."""
        rows = [row for row in self.rows if row.get("library") == ""]
        columns = list(dict.fromkeys(row["column"] for row in rows))
        lines = [f"Our backends, {WHAT}", f"{'':30}{'envs':>5}" + "".join(f"{c:>10}" for c in columns)]
        for task in TASKS.values():
            for envs in sorted({row["envs"] for row in rows if row["task"] == task.name}):
                speeds = {
                    row["column"]: _short(row["steps_per_s"])
                    for row in rows
                    if row["task"] == task.name and row["envs"] == envs
                }
                line = f"{task.title:30}{envs:>5}" + "".join(f"{speeds.get(c, ''):>10}" for c in columns)
                lines.append(line.rstrip())
        return "\n".join(lines)


def _place(side: Side) -> dict[str, Any]:
    """Returns where a side is in the table."""
    return {"column": side.column, "library": side.library.name if side.library else ""}


def _libraries(columns: Mapping[str, str]) -> str:
    """Formats the line above the columns {column: library}: each library above its first one."""
    line, before = "", ""
    for number, library in enumerate(columns.values()):
        if library != before:
            line = line.ljust(9 * number + 2) + library + " "
            before = library
    return line


def _short(value: float) -> str:
    """Formats a number with three significant digits: 187k, 1.25M, 98.7."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit * 0.9995:
            return f"{value / limit:#.3g}".rstrip(".") + unit
    return f"{value:#.3g}".rstrip(".")
