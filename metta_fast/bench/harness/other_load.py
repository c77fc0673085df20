"""How busy other programs are: a round in which they used more than a tenth of a core says nothing.

    watch = OtherLoad()
    …                          # a round
    used = watch.stop()        # used.cores, used.worst

CPU seconds are summed over all processes that can be seen, with those of their children that have ended, so
that short-lived ones count too; this process and everything below it are ours. Inside a container the
processes of others cannot be seen, and are not counted.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

LIMIT = 0.1
"""Cores of other programs above which a round is repeated."""
DISTURBED = "disturbed by other programs"
"""Notes of a report say it in these words; its picture has them too."""


@dataclass(frozen=True)
class Used:
    """What other programs used during a watch."""

    cores: float
    worst: str
    """The busiest of them, by name and number of its process; "" if none can be told."""

    @property
    def quiet(self) -> bool:
        return self.cores <= LIMIT

    def __str__(self) -> str:
        return f"{self.cores:.2f} cores" + (f", most by {self.worst}" if self.worst else "")


class OtherLoad:
    """Watches from construction to `stop()`."""

    def __init__(self) -> None:
        self._time = time.monotonic()
        self._before, self._parents = _seconds()

    def stop(self) -> Used:
        """Cores used by others since the construction."""
        elapsed = max(time.monotonic() - self._time, 1e-3)
        after, _ = _seconds()
        grown = {pid: value - self._before.get(pid, 0.0) for pid, value in after.items()}
        for pid, value in self._before.items():
            if pid in after:
                continue
            # A parent that waits takes over all that its child used, also before the watch; if it ended too, its own
            # parent has both.
            heir = self._parents[pid]
            while heir not in grown and heir in self._parents:
                heir = self._parents[heir]
            if heir in grown:
                grown[heir] = max(grown[heir] - value, 0.0)
        worst = max(grown, key=lambda pid: grown[pid], default=None)
        name = "" if worst is None or grown[worst] <= 0 else _name(worst)
        return Used(sum(grown.values()) / elapsed, name)


def _seconds() -> tuple[dict[int, float], dict[int, int]]:
    """CPU seconds of every visible process that is not ours, its ended children included; and all parents."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for process in psutil.process_iter():
        try:
            parents[process.pid] = process.ppid()
            spent[process.pid] = sum(process.cpu_times()[:4])
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it ended meanwhile: its seconds are in its parent's figure
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
