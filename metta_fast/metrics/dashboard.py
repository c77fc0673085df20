"""Shows a run's progress: a rich dashboard on a terminal, plain lines elsewhere.

A dashboard gets every metrics row and decides how often to draw (`REFRESH_S`, `LINE_S`). It draws in the trainer's
thread between epochs, so no thread competes with the training. Rows are merged: a value stays visible until a newer
one arrives, since monitor readings and evaluations are rarer than losses.

Place in the flow: run/run_writer.py calls `update` once an epoch and `message` for each line of text.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from metta_fast.metrics.progress_text import keep, line, readings, short, time_left, time_shares

if TYPE_CHECKING:
    from rich.panel import Panel
    from rich.table import Table

REFRESH_S = 0.5
"""Least seconds between two drawings of the rich dashboard."""
LINE_S = 5.0
"""Least seconds between two plain lines."""
CURVE_POINTS = 512
"""Most points of the return curve; when reached, neighbouring points are merged in pairs."""
TABLE_ROWS = 12
"""Most rows of one table."""

_BARS = "▁▂▃▄▅▆▇█"


class Dashboard(Protocol):
    def update(self, row: dict[str, float]) -> None:
        """Takes a row of metrics."""

    def message(self, text: str) -> None:
        """Shows one line of text."""

    def slower_without(self, paths: Sequence[str]) -> None:
        """Shows which fast paths the run lacks at the cost of speed: `names: reason` each."""

    def close(self) -> None:
        """Draws the last row if it is not shown yet, and restores the terminal."""


def make_dashboard(kind: str, *, title: str, total_steps: int, curve: Iterable[float] = ()) -> Dashboard:
    """Creates the dashboard that `run.dashboard` names: rich, plain, none, or auto (rich if stderr is a terminal).

    Args:
        curve: earlier values of env/return, for a resumed run.
    """
    if kind == "none":
        return NoDashboard()
    if kind == "plain" or (kind == "auto" and not sys.stderr.isatty()):
        return PlainDashboard(total_steps)
    return RichDashboard(title, total_steps, curve)


class NoDashboard:
    """Shows messages only."""

    def update(self, row: dict[str, float]) -> None:
        return

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def slower_without(self, paths: Sequence[str]) -> None:
        return

    def close(self) -> None:
        return


class PlainDashboard:
    """Prints one line to stderr every few seconds."""

    def __init__(self, total_steps: int) -> None:
        self._total = total_steps
        self._seen: dict[str, float] = {}
        self._drawn = -math.inf
        self._waiting = False

    def update(self, row: dict[str, float]) -> None:
        self._seen.update(keep(row))
        self._waiting = time.monotonic() - self._drawn < LINE_S
        if not self._waiting:
            self._drawn = time.monotonic()
            self.message(line(self._seen, self._total))

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def slower_without(self, paths: Sequence[str]) -> None:
        for text in paths:
            self.message(f"slower without {text}")

    def close(self) -> None:
        if self._waiting:
            self._waiting = False
            self.message(line(self._seen, self._total))


class RichDashboard:
    """Redraws one panel in place, with the curve of the return."""

    def __init__(self, title: str, total_steps: int, curve: Iterable[float] = ()) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title, self._total = title, total_steps
        self._seen: dict[str, float] = {}
        self._drawn = -math.inf
        self._curve = Curve(curve)
        self._slower: tuple[str, ...] = ()
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=False)
        self._live.start()

    def update(self, row: dict[str, float]) -> None:
        kept = keep(row)
        self._seen.update(kept)
        if "env/return" in kept:
            self._curve.add(kept["env/return"])
        if time.monotonic() - self._drawn >= REFRESH_S:
            self._live.update(self._panel(), refresh=True)
            self._drawn = (
                time.monotonic()
            )  # after drawing, so that a slow terminal does not take all the time

    def message(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def slower_without(self, paths: Sequence[str]) -> None:
        self._slower = tuple(paths)

    def close(self) -> None:
        if self._seen:
            self._live.update(self._panel(), refresh=True)
        self._live.stop()

    def _panel(self) -> Panel:
        return run_panel(
            self._seen,
            self._total,
            self._curve,
            title=self._title,
            width=self._console.width,
            slower=self._slower,
        )


class Curve:
    """Keeps a sequence of values in limited space: when full, neighbours are averaged in pairs."""

    def __init__(self, values: Iterable[float] = ()) -> None:
        self._values: list[float] = []
        self._stride, self._sum, self._count = 1, 0.0, 0
        for value in values:
            self.add(value)

    def add(self, value: float) -> None:
        """Appends a value."""
        self._sum, self._count = self._sum + value, self._count + 1
        if self._count < self._stride:
            return
        self._values.append(self._sum / self._count)
        self._sum, self._count = 0.0, 0
        if len(self._values) >= CURVE_POINTS:
            pairs = zip(self._values[::2], self._values[1::2])
            self._values = [(first + second) / 2 for first, second in pairs]
            self._stride *= 2

    def bars(self, width: int) -> str:
        """Draws the whole curve in `width` characters, each the mean of its part."""
        count = len(self._values)
        if count == 0:
            return ""
        width = min(width, count)
        edges = [i * count // width for i in range(width + 1)]
        means = [sum(self._values[a:b]) / (b - a) for a, b in pairwise(edges)]
        low, span = min(means), (max(means) - min(means)) or 1.0
        return "".join(_BARS[min(int((mean - low) / span * len(_BARS)), len(_BARS) - 1)] for mean in means)


def run_panel(
    seen: dict[str, float],
    total: int,
    curve: Curve,
    *,
    title: str,
    width: int,
    machine: bool = True,
    tight: bool = False,
    slower: Sequence[str] = (),
) -> Panel:
    """Draws a run's metrics as a rich panel.

    Args:
        seen: newest value of each name.
        total: trainer.total_timesteps.
        machine: show the machine's readings.
        tight: leave out empty lines, for a terminal with few lines.
        slower: see Dashboard.slower_without.
    """
    from rich.columns import Columns
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    value = short(seen["env/return"]) if "env/return" in seen else "-"
    shape = Text(f"return {value:>9}  ", style="bold")
    shape.append(curve.bars(max(width - 24, 10)), style="green")
    tables = Columns(_tables(seen, machine=machine, tight=tight))
    missed = [Text(f"slower without {text}", style="yellow") for text in slower]
    return Panel(Group(_progress(seen, total), shape, tables, *missed), title=title, title_align="left")


def _progress(seen: dict[str, float], total: int) -> Table:
    """Draws the first line: steps, progress bar, speed, time left."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    steps = seen.get("train/steps", 0.0)
    head = Table.grid(expand=True, padding=(0, 2))
    head.add_column(no_wrap=True)
    head.add_column(ratio=1)
    head.add_column(no_wrap=True, justify="right")
    head.add_row(
        Text(f"{short(steps)} / {short(total)} steps", style="bold"),
        ProgressBar(total=max(total, 1), completed=min(steps, total)),
        Text(f"{short(seen.get('perf/steps_per_second', 0.0))} steps/s   left {time_left(seen, total)}"),
    )
    return head


def _tables(seen: dict[str, float], *, machine: bool, tight: bool) -> list[Table]:
    """Draws one table for each group of values: time, loss, env, run, machine."""
    from rich import box
    from rich.table import Table

    entries = {
        "time": [(phase, f"{100 * share:.0f} %") for phase, share in time_shares(seen).items()],
        "loss": _figures(seen, "loss/"),
        "env": _figures(seen, "env/", "eval/"),
        "run": _figures(
            seen,
            *("train/", "perf/"),
            skip=(
                "train/steps",
                "perf/steps_",
                "perf/first_",
                "perf/time/",
                "perf/gpu_",
                "perf/cpu_",
                "perf/memory_",
            ),
        ),
        "machine": readings(seen) if machine else [],
    }
    tables = []
    for name, rows in entries.items():
        if not rows:
            continue
        table = Table(
            title=name,
            box=None if tight else box.SIMPLE_HEAD,
            show_header=False,
            title_justify="left",
            padding=(0, 1),
        )
        table.add_column(no_wrap=True, style="cyan")
        table.add_column(no_wrap=True, justify="right")
        for label, text in rows[:TABLE_ROWS]:
            table.add_row(label, text)
        tables.append(table)
    return tables


def _figures(seen: dict[str, float], *prefixes: str, skip: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Returns (label, text) of the values whose names start with one of `prefixes` and none of `skip`."""
    return [
        (key.split("/", 1)[1].replace("_", " "), short(value))
        for key, value in sorted(seen.items())
        if key.startswith(prefixes) and not key.startswith(skip)
    ]
