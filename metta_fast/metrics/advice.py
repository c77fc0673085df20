"""Says what would make a run faster, from its metrics: one line, at most once a minute.

    advisor = Advisor()
    advisor.take(row)            # each row of metrics
    advisor.line()               # "the GPU is 41 % busy: raise env.num_envs …", or ""

Three things are looked at, as means over the last minute: how busy the GPU is, how much of its memory is used, and
how the time is divided between collecting and learning. Used by the dashboards and by `metta-fast monitor`.
"""

from __future__ import annotations

import math
import time

EVERY_S = 60.0
"""Least seconds between two changes of the line."""
FIRST_S = 20.0
"""Seconds of a run before the first line: the first epochs compile and warm up."""
BUSY = 70.0
"""Percent of the time below which a GPU counts as idle."""
MEMORY = 50.0
"""Percent of the GPU's memory below which it counts as hardly used."""
COLLECTS = 0.75
"""Share of the time from which collecting counts as too large."""
LEARNS = 0.85
"""Share of the time from which learning counts as too large: on a CPU two thirds are usual."""
LEARNING = ("advantage", "update")
FULL = 85.0
"""Percent of the cores from which they count as all used."""


class Advisor:
    """Takes rows of metrics, and keeps the present advice."""

    def __init__(self, first_s: float = FIRST_S) -> None:
        """Starts without advice. first_s: seconds from the first row to the first line."""
        self._first_s = first_s
        self._began = self._judged = -math.inf
        self._sums: dict[str, list[float]] = {}
        self._line = ""

    def take(self, row: dict[str, float], now: float | None = None) -> bool:
        """Takes a row, and judges what came since the last time if a minute has passed.

        Args:
            row: finite values by name.
            now: seconds on any clock; None: time.monotonic().

        Returns:
            Whether the advice is another one now.
        """
        now = time.monotonic() if now is None else now
        if self._began == -math.inf:
            self._began = now
        for name, value in row.items():
            if name.startswith(("perf/time/", "perf/gpu_", "perf/cpu_")):
                self._sums.setdefault(name, []).append(value)
        if now - self._began < self._first_s or now - self._judged < EVERY_S:
            return False
        means = {name: sum(values) / len(values) for name, values in self._sums.items()}
        before, self._line = self._line, advice(means)
        self._judged, self._sums = now, {}
        return self._line != before

    def line(self) -> str:
        """Returns the present advice; "" if there is none."""
        return self._line


def advice(seen: dict[str, float]) -> str:
    """Returns what to change, and why; "" if nothing is to be said.

    Args:
        seen: perf/time/<phase> in seconds, perf/gpu_… and perf/cpu_utilization in percent; what is absent does not
            count.
    """
    phases = {name.removeprefix("perf/time/"): value for name, value in seen.items() if "/time/" in name}
    whole = sum(phases.values()) or 1.0
    learning = sum(phases.get(name, 0.0) for name in LEARNING) / whole
    collecting = sum(value for name, value in phases.items() if name not in (*LEARNING, "boundary")) / whole
    env = phases.get("env", 0.0) / whole
    busy, memory = seen.get("perf/gpu_utilization"), seen.get("perf/gpu_memory_percent")
    idle = busy is not None and busy < BUSY
    start = f"the GPU is {busy:.0f} % busy, " if idle else ""
    if collecting >= COLLECTS and env >= collecting / 2:
        return f"{start}the environments take {100 * env:.0f} % of the time: {_faster_stepping(seen)}"
    if collecting >= COLLECTS:
        return (
            f"{start}collecting takes {100 * collecting:.0f} % of the time: raise env.num_envs, so that each call of "
            "the policy chooses more actions"
        )
    if learning >= LEARNS and "train/replay" not in seen:  # an update a step is meant to take the time
        larger = ", raise trainer.minibatch_size" if busy is not None else ""
        return (
            f"{start}learning takes {100 * learning:.0f} % of the time: lower trainer.update_epochs, if it is above 1"
            f"{larger}, or take a smaller policy.hidden_size; see whether the return rises as well"
        )
    if idle:
        return f"the GPU is {busy:.0f} % busy: raise env.num_envs and trainer.batch_size, or trainer.minibatch_size"
    if memory is not None and memory < MEMORY:
        return (
            f"{memory:.0f} % of the GPU's memory is used: env.num_envs and trainer.batch_size may be larger; "
            "metta-fast bench --find-batch finds what fits"
        )
    return ""


def _faster_stepping(seen: dict[str, float]) -> str:
    cores = seen.get("perf/cpu_utilization")
    if cores is not None and cores >= FULL:
        return f"the cores are {cores:.0f} % busy, so learn more from each step (trainer.update_epochs)"
    return (
        "raise vector.num_workers (native environments: vector.num_threads), up to the number of cores; environments "
        "that come as one batch or step on a GPU: env.num_envs"
    )
