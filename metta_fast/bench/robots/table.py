"""Shows the results of `--robot` as one table.

A row has `what` ("physics" or "training"), `preset` ("" for the CPU), `envs`, and `times_cpu`, over the CPU's speed.
One that failed has `failed` in place of speeds.
"""

from __future__ import annotations

from typing import Any

from metta_fast.bench.harness.report import Report, show_count

Row = dict[str, Any]
TITLES = {"physics": "physics and rules, random actions", "training": "training, all included"}


class RobotReport(Report):
    """A Report of one robot."""

    def show(self) -> str:
        """Formats the tables as plain text."""
        lines = [self.head(), self.command]
        for what, title in TITLES.items():
            rows = [row for row in self.rows if row["what"] == what]
            if rows:
                names = ("steps/s", "low", "high")
                figures = "  ".join(f"{name:>10}" for name in names)
                lines += ["", f"{title:34}  {figures}  {'times the CPU':>13}  {'build s':>7}  MiB"]
                lines += [_line(row) for row in rows]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def _line(row: Row) -> str:
    name = f"{row['preset'] or 'CPU'}, {row['envs']} robots"
    if "failed" in row:
        return f"  {name:32}  failed: {row['failed']}"
    figures = "  ".join(show_count(row[key]) for key in ("steps_per_s", "low", "high"))
    times = f"{row['times_cpu']:.1f}" if "times_cpu" in row else ""
    mib = f"{row['memory_mib']:.0f}" if row.get("memory_mib") else ""
    return f"  {name:32}  {figures}  {times:>13}  {row.get('build_s', 0):>7.1f}  {mib}".rstrip()
