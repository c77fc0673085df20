"""Measures how an epoch's wall time is divided between its phases.

With environments on the GPU the host only launches kernels; there DeviceTimer measures on the device.
"""

from __future__ import annotations

from itertools import pairwise
from time import perf_counter

import torch

PHASES = ("env", "inference", "copy", "advantage", "update")
"""Phases: env waits for a ready block; inference runs policy and sampling; copy moves rows in and actions out; …"""


LAST = "update"
"""The phase that ends an epoch."""


class Timer:
    """Measures the host's seconds in each phase. On a GPU these are launching and waiting, not the kernels.

    timer.start(); …; timer.lap("env"); …; timer.lap("copy")     # each lap ends its phase and starts the next
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._last = perf_counter()

    def clear(self) -> None:
        """Begins an epoch."""
        for phase in PHASES:
            self._seconds[phase] = 0.0
        self._last = perf_counter()

    def start(self) -> None:
        """Skips the time since the last lap."""
        self._last = perf_counter()

    def lap(self, phase: str) -> None:
        """Adds the time since the last lap or start to `phase`."""
        now = perf_counter()
        self._seconds[phase] += now - self._last
        self._last = now

    def mark(self, phase: str) -> None:
        """Marks that all of a phase's work has been launched on the device."""

    def phases(self) -> dict[str, float]:
        """Returns the seconds of each phase since `clear`."""
        return dict(self._seconds)


class ExactTimer(Timer):
    """Waits for the GPU at the end of each phase, so that its work is counted in that phase. This costs speed."""

    def start(self) -> None:
        torch.cuda.synchronize()
        super().start()

    def lap(self, phase: str) -> None:
        if torch.cuda.is_current_stream_capturing():  # the launches are recorded, not executed
            return
        torch.cuda.synchronize()
        super().lap(phase)


class DeviceTimer(Timer):
    """Measures the seconds between marks on the GPU; the host's work in the meantime is not counted. Marks of one phase
    are added up.

    timer.clear(); …; timer.mark("rollout"); …; timer.mark("update"); (synchronise); timer.phases()
    """

    def __init__(self) -> None:
        super().__init__()
        self._marks: list[tuple[str, torch.cuda.Event]] = []
        self._done: list[tuple[str, torch.cuda.Event]] = []

    def clear(self) -> None:
        """Begins an epoch; until its update is marked, `phases` reports the one before: the next rollout may be under
        way while figures are read."""
        self._done, self._marks = self._marks, []
        self.mark("")

    def lap(self, phase: str) -> None:
        pass

    def mark(self, phase: str) -> None:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((phase, event))

    def phases(self) -> dict[str, float]:
        marks = self._marks if self._marks and self._marks[-1][0] == LAST else self._done
        found: dict[str, float] = {}
        for (_, before), (phase, event) in pairwise(marks):
            found[phase] = found.get(phase, 0.0) + before.elapsed_time(event) / 1000
        return found
