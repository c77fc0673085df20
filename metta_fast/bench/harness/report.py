"""Reports a benchmark's results: rows of steps per second and ratios, as a table and as JSON.

    {"machine": {…}, "command": "…",
     "rows": [{"name", "steps_per_s", "low", "high", "n", …}], "ratios": [{"name", "value", "low", "high"}]}

A row's value is the median of its `n` rounds; low and high are the slowest and the fastest one. A ratio's value is
the median over pairs of neighbouring rounds; low and high are its extremes. Rows may have more keys: `phases` (seconds
by phase over all rounds), `gpu_utilization` (percent), `settings`, `to_return` {"target", "limit", "reached",
"seconds", "steps", "return"}.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metta_fast.contracts.errors import UserError
from metta_fast.storage.atomic_file import whole


@dataclass
class Report:
    """Collects the rows and ratios of one command."""

    machine: dict[str, Any]
    command: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    ratios: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Lines below the table, also in the JSON."""

    def add_row(self, name: str, speeds: Sequence[float], **more: Any) -> None:
        """Adds a row from the steps per second of each round; `more` keys that are None are left out."""
        extra = {key: value for key, value in more.items() if value is not None}
        self.rows.append(
            {
                "name": name,
                "steps_per_s": statistics.median(speeds),
                "low": min(speeds),
                "high": max(speeds),
                "n": len(speeds),
                **extra,
            }
        )

    def add_ratio(self, name: str, above: Sequence[float], below: Sequence[float]) -> None:
        """Adds the ratio above / below, pair by pair."""
        pairs = [a / b for a, b in zip(above, below, strict=True)]
        self.ratios.append(
            {"name": name, "value": statistics.median(pairs), "low": min(pairs), "high": max(pairs)}
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON document described above."""
        document = {
            "machine": self.machine,
            "command": self.command,
            "rows": self.rows,
            "ratios": self.ratios,
        }
        return document | ({"notes": self.notes} if self.notes else {})

    def write(self, path: Path) -> None:
        """Writes the JSON document. Raises UserError if the file cannot be written."""
        try:
            with whole(path) as beside:
                beside.write_text(json.dumps(self.to_json(), indent=1) + "\n")
        except OSError as error:
            raise UserError(f"cannot write --json {path}: {error.strerror}") from error

    def head(self) -> str:
        """Formats the machine in one line."""
        return ", ".join(f"{key} {_short(value)}" for key, value in self.machine.items())

    def show(self) -> str:
        """Formats the table as plain text; long names are shortened, the command above shows them in full."""
        names = [_cut(row["name"]) for row in self.rows]
        width = max(map(len, [*names, *(ratio["name"] for ratio in self.ratios)]), default=4)
        lines = [self.head(), self.command, ""]
        if self.rows:
            lines.append(f"{'':{width}}  {'steps/s':>10}  {'low':>10}  {'high':>10}  rounds")
        for name, row in zip(names, self.rows, strict=True):
            figures = "  ".join(show_count(row[key]) for key in ("steps_per_s", "low", "high"))
            lines.append(f"{name:{width}}  {figures}  {row['n']:>6}")
        details = [(name, _details(row)) for name, row in zip(names, self.rows, strict=True)]
        lines += [f"{name:{width}}  {text}" for name, text in details if text]
        lines += [""] if self.ratios else []
        for ratio in self.ratios:
            lines.append(
                f"{ratio['name']:{width}}  {ratio['value']:.2f} times  "
                f"({ratio['low']:.2f} to {ratio['high']:.2f})"
            )
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def _cut(name: str, most: int = 60) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _details(row: dict[str, Any]) -> str:
    """Formats the phases in percent, the GPU's utilisation and the time to a return."""
    words = []
    phases = row.get("phases") or {}
    total = sum(phases.values())
    if total > 0:
        words.append(", ".join(f"{name} {100 * value / total:.0f}%" for name, value in phases.items()))
    if "gpu_utilization" in row:
        words.append(f"GPU busy {row['gpu_utilization']:.0f}%")
    if "to_return" in row:
        words.append(f"to a return of {row['to_return']['target']:g}: {returned(row['to_return'])}")
    return "; ".join(words)


def returned(found: dict[str, Any]) -> str:
    """Formats a row's `to_return`."""
    if found["reached"]:
        return f"{found['seconds']:.1f} s, {found['steps']:,} steps"
    last = "no episode ended" if found["return"] is None else f"last {found['return']:.3g}"
    return f"not reached in {found['limit']:g} s ({last})"


def show_count(value: float) -> str:
    """Formats a number in ten characters with three significant digits: `   12.3 M`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:8.3g} {unit}"
    return f"{value:8.3g}  "


def _short(value: Any) -> str:
    return " + ".join(map(str, value)) if isinstance(value, list) else str(value)
