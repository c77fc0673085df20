"""Shows the results of `--camera` as one table.

A row has `renderer`, `size`, `envs`, `parts` {physics, camera, policy, training: {steps_per_s, low, high}}, and
`shares` {physics, camera, network} of a rollout's time; or `failed` {part: reason}.
"""

from __future__ import annotations

from typing import Any

from metta_fast.bench.harness.report import Report, show_count

Row = dict[str, Any]
PARTS = {"physics": "physics", "camera": "+ pictures", "policy": "+ policy", "training": "training"}
LOGGED = {1: 4.6, 4: 22.9, 8: 32.0, 16: 44.0}
"""Robots → samples a second in logs of the same task elsewhere, without learning."""
LOGGED_NOTE = (
    "`logs` are samples a second in logs of a cube lifted from the wrist elsewhere, without learning (physics 40%, "
    "camera 50%, network 10%); one environment with SAC at 84 px: 19 to 20"
)


class CameraReport(Report):
    """A Report of robots that see pictures."""

    def show(self) -> str:
        """Formats the table as plain text."""
        titles = "  ".join(f"{title:>10}" for title in PARTS.values())
        lines = [self.head(), self.command, ""]
        lines.append(f"{'steps/s':32}  {titles}  {'physics/camera/network':>22}  {'logs':>5}")
        lines += [_line(row) for row in self.rows]
        return "\n".join(lines + [f"note: {note}" for note in (*self.notes, LOGGED_NOTE)])


def _line(row: Row) -> str:
    figures = "  ".join(
        show_count(row["parts"][part]["steps_per_s"]) if part in row["parts"] else f"{'failed':>10}"
        for part in PARTS
    )
    name = f"  {row['renderer']}, {row['size']} px, {row['envs']} robots"
    if "failed" in row:
        reasons = "; ".join(f"{part}: {why}" for part, why in row["failed"].items())
        return f"{name:32}  {figures}  {reasons}"
    shares = " / ".join(f"{100 * share:.0f}%" for share in row["shares"].values())
    logged = LOGGED.get(row["envs"]) if row["renderer"] == "sequential" else None
    return f"{name:32}  {figures}  {shares:>22}  {logged or '':>5}".rstrip()
