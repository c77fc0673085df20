"""Where an epoch's wall time goes: a stopwatch that is handed from phase to phase.

With environments on the GPU the host only launches; there DeviceTimer asks the device instead.
"""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter

import torch

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

    def mark(self, phase: str) -> None:
        """The device's work of a phase was launched."""

    def phases(self) -> dict[str, float]:
        """Seconds by phase since `clear`."""
        return dict(self._seconds)


class ExactTimer(Timer):
    """Waits for the GPU at the end of each phase, so that its work counts where it belongs. That costs speed."""

    def start(self) -> None:
        torch.cuda.synchronize()
        super().start()

    def lap(self, phase: str) -> None:
        if torch.cuda.is_current_stream_capturing():  # its launches' work is not done now
            return
        torch.cuda.synchronize()
        super().lap(phase)


class DeviceTimer(Timer):
    """Seconds between marks as the GPU saw them; what the host does in the meantime is not counted.

    timer.clear(); …; timer.mark("rollout"); …; timer.mark("update"); (synchronise); timer.phases()
    """

    def __init__(self) -> None:
        super().__init__()
        self._marks: list[tuple[str, torch.cuda.Event]] = []
        self._done: list[tuple[str, torch.cuda.Event]] = []

    def clear(self) -> None:
        """Begin an epoch; the marks of the one before are what `phases` tells of."""
        self._done, self._marks = self._marks, []
        self.mark("")

    def lap(self, phase: str) -> None:
        pass

    def mark(self, phase: str) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((phase, event))

    def phases(self) -> dict[str, float]:
        marks = self._marks if len(self._marks) > 2 else self._done
        return {phase: before.elapsed_time(event) / 1000 for (_, before), (phase, event) in pairwise(marks)}
