"""Where an epoch's wall time goes: a stopwatch that is handed from phase to phase."""

from __future__ import annotations

from time import perf_counter

PHASES = ("env", "inference", "copy", "advantage", "update")
"""env: waiting for a ready block; inference: policy and sampling; copy: rows in, actions out; …"""


class Timer:
    """Seconds by phase. On a GPU a phase counts what the host launches and waits for.

    timer.start(); …; timer.lap("env"); …; timer.lap("copy")     # each lap ends its phase and starts the next
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._last = perf_counter()

    def clear(self) -> None:
        """Begin an epoch."""
        for phase in PHASES:
            self._seconds[phase] = 0.0
        self._last = perf_counter()

    def start(self) -> None:
        """Leave out the time since the last lap."""
        self._last = perf_counter()

    def lap(self, phase: str) -> None:
        """The time since the last lap or start belongs to `phase`."""
        now = perf_counter()
        self._seconds[phase] += now - self._last
        self._last = now

    def phases(self) -> dict[str, float]:
        """Seconds by phase since `clear`."""
        return dict(self._seconds)
