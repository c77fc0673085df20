"""Measures how busy other programs are; a round in which they use more than a tenth of a core is not valid.

    watch = OtherLoad()
    …                          # a round
    used = watch.stop()        # used.cores, used.worst

CPU seconds are summed over all visible processes, including their ended children, so that short-lived processes count
too. This process and its descendants are left out. Inside a container, processes outside it are invisible and not
counted.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

LIMIT = 0.1
"""Most cores that other programs may use before a round is repeated."""
DISTURBED = "disturbed by other programs"
"""Wording of a report's notes, which charts look for."""


@dataclass(frozen=True)
class Used:
    """CPU use of other programs."""

    cores: float
    worst: str
    """Name and process number of the busiest program; "" if unknown."""

    @property
    def quiet(self) -> bool:
        return self.cores <= LIMIT

    def __str__(self) -> str:
        return f"{self.cores:.2f} cores" + (f", most by {self.worst}" if self.worst else "")


class OtherLoad:
    """Measures from construction to `stop()`."""

    def __init__(self) -> None:
        self._time = time.monotonic()
        self._before, self._parents = _seconds()

    def stop(self) -> Used:
        """Returns the cores used by other programs since construction."""
        elapsed = max(time.monotonic() - self._time, 1e-3)
        after, _ = _seconds()
        grown = {pid: value - self._before.get(pid, 0.0) for pid, value in after.items()}
        for pid, value in self._before.items():
            if pid in after:
                continue
            # A waiting parent inherits all CPU seconds of its ended child, also those before the measurement; if the
            # parent ended too, its own parent has both.
            heir = self._parents[pid]
            while heir not in grown and heir in self._parents:
                heir = self._parents[heir]
            if heir in grown:
                grown[heir] = max(grown[heir] - value, 0.0)
        worst = max(grown, key=lambda pid: grown[pid], default=None)
        name = "" if worst is None or grown[worst] <= 0 else _name(worst)
        return Used(sum(grown.values()) / elapsed, name)


def _seconds() -> tuple[dict[int, float], dict[int, int]]:
    """Returns the CPU seconds of every visible process that is not ours (with ended children), and all parents."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for process in psutil.process_iter():
        try:
            parents[process.pid] = process.ppid()
            spent[process.pid] = sum(process.cpu_times()[:4])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it ended in the meantime: its parent has its seconds
    own = os.getpid()

    def ours(pid: int) -> bool:
        seen = 0
        while pid in parents and seen < 1000:
            if pid == own:
                return True
            pid, seen = parents[pid], seen + 1
        return pid == own

    return {pid: value for pid, value in spent.items() if not ours(pid)}, parents


def _name(pid: int) -> str:
    try:
        return f"{psutil.Process(pid).name()} ({pid})"
    except psutil.NoSuchProcess:
        return f"process {pid}"
