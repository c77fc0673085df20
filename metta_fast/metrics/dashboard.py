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
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from metta_fast.contracts.printable import printable
from metta_fast.metrics.advice import Advisor
from metta_fast.metrics.progress_text import keep, line
from metta_fast.metrics.run_panel import Curve, run_panel

if TYPE_CHECKING:
    from rich.live import Live
    from rich.panel import Panel

REFRESH_S = 0.5
"""Least seconds between two drawings of the rich dashboard."""
LINE_S = 5.0
"""Least seconds between two plain lines."""
KEPT = 8
"""Messages that are shown again after a change of the terminal's size."""


class Dashboard(Protocol):
    def update(self, row: dict[str, float]) -> None:
        """Takes a row of metrics."""

    def moved(self, steps: int) -> None:
        """Takes the number of steps so far, within an epoch. Called at every step of the environments."""

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

    def moved(self, steps: int) -> None:
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
        self._begun = 0.0
        """When the environments first stepped."""
        self._waiting = False
        self._advisor = Advisor()

    def update(self, row: dict[str, float]) -> None:
        kept = keep(row)
        self._seen.update(kept)
        if self._advisor.take(kept) and self._advisor.line():
            self.message(f"advice: {self._advisor.line()}")
        self._waiting = time.monotonic() - self._drawn < LINE_S
        if not self._waiting:
            self._drawn = time.monotonic()
            self.message(line(self._seen, self._total))

    def moved(self, steps: int) -> None:
        now = time.monotonic()
        self._begun = self._begun or now
        if now - max(self._drawn, self._begun) >= LINE_S:
            self._drawn = now
            self._seen["train/steps"] = steps
            self.message(line(self._seen, self._total))

    def message(self, text: str) -> None:
        print(printable(text), file=sys.stderr, flush=True)

    def slower_without(self, paths: Sequence[str]) -> None:
        for text in paths:
            self.message(f"slower without {text}")

    def close(self) -> None:
        if self._waiting:
            self._waiting = False
            self.message(line(self._seen, self._total))


class RichDashboard:
    """Redraws one panel in place, with the curve of the return.

    The panel always fits the terminal: one that is higher could not be drawn over. After a change of the terminal's
    size the screen is cleared, since the terminal may have wrapped the old panel; the last messages are shown again.
    """

    def __init__(self, title: str, total_steps: int, curve: Iterable[float] = ()) -> None:
        from rich.console import Console

        self._title, self._total = title, total_steps
        self._seen: dict[str, float] = {}
        self._drawn = -math.inf
        self._curve = Curve(curve)
        self._slower: tuple[str, ...] = ()
        self._advisor = Advisor()
        self._said: deque[str] = deque(maxlen=KEPT)
        self._console = Console(stderr=True)
        self._size = self._console.size
        self._live = self._start()

    def _start(self) -> Live:
        from rich.live import Live

        live = Live(console=self._console, auto_refresh=False, transient=False)
        live.start()
        return live

    def update(self, row: dict[str, float]) -> None:
        kept = keep(row)
        self._seen.update(kept)
        self._advisor.take(kept)
        if "env/return" in kept:
            self._curve.add(kept["env/return"])
        if time.monotonic() - self._drawn >= REFRESH_S:
            self._draw()
            self._drawn = (
                time.monotonic()
            )  # after drawing, so that a slow terminal does not take all the time

    def moved(self, steps: int) -> None:
        if time.monotonic() - self._drawn >= REFRESH_S:
            self._seen["train/steps"] = steps
            self._draw()
            self._drawn = time.monotonic()

    def message(self, text: str) -> None:
        self._said.append(text)
        self._console.print(text, markup=False, highlight=False)

    def slower_without(self, paths: Sequence[str]) -> None:
        self._slower = tuple(paths)

    def close(self) -> None:
        if self._seen and self._live.is_started:
            self._draw(last=True)
        self._live.stop()

    def _draw(self, *, last: bool = False) -> None:
        """Draws the panel, and except for the last time an empty line for the cursor, where a typed ^C appears."""
        from rich.console import Group

        if self._console.size != self._size:
            self._size = self._console.size
            self._live.transient = True
            self._live.stop()
            self._console.clear()
            for text in self._said:
                self._console.print(text, markup=False, highlight=False)
            self._live = self._start()
        panel = self._panel()
        self._live.update(panel if last else Group(panel, ""), refresh=True)

    def _panel(self) -> Panel:
        return run_panel(
            self._seen,
            self._total,
            self._curve,
            title=self._title,
            width=self._size.width,
            height=max(self._size.height - 1, 4),
            slower=self._slower,
            advice=self._advisor.line(),
        )
