"""Measures how long a run's epochs take and decides what is due at a boundary. Times are monotonic.

Place in the flow: trainer.py makes one when everything is built, and asks it at each boundary.
"""

from __future__ import annotations

import time

from metta_fast.config.keys import Config, RunConfig
from metta_fast.machine.monitor import Monitor
from metta_fast.machine.process_clock import process_age
from metta_fast.metrics.loggers import Row
from metta_fast.run.snapshot import Speed
from metta_fast.runtime.interval import Interval

INTERVALS = {"profiler": "profile/", "weight_analysis": "weights/"}
"""Feature with a key interval_epochs → beginning of its metrics' names."""


def unmet(config: Config, metrics: Row) -> list[str]:
    """Returns a line for each interval of a feature that is longer than the whole run, which then has no such figures.

    Args:
        metrics: the newest value of each name, at the run's end.
    """
    asked = [("run.gradient_stats_interval", config.run.gradient_stats_interval, "gradient/")]
    for name, prefix in INTERVALS.items():
        keys = config.features.get(name)
        if isinstance(keys, dict):
            asked.append((f"features.{name}.interval_epochs", keys.get("interval_epochs", 0), prefix))
    epochs = int(metrics.get("train/epoch", 0))
    return [
        f"no metrics {prefix}…: {path}={epochs_apart} epochs are more than the {epochs} of this run"
        for path, epochs_apart, prefix in asked
        if epochs_apart > epochs and not any(name.startswith(prefix) for name in metrics)
    ]


class Clocks:
    """Keeps the intervals, the speed and the time of one session of a run.

    Attributes:
        log, evaluate, replay: when a row of metrics, an evaluation, a replay is due.
    """

    def __init__(
        self, run: RunConfig, *, epoch: int, steps: int, seconds: float, monitor: Monitor | None
    ) -> None:
        """Starts counting; epochs count on over interruptions, so that sessions shorter than an interval reach it.

        Args:
            epoch, steps, seconds: what the run has behind it.
            monitor: None: the machine is not looked at.
        """

        def interval(epochs: int) -> Interval:
            return Interval(epochs, min_s=run.min_interval_s, start=epoch - epoch % max(epochs, 1))

        self.log = Interval(run.log_interval, start=epoch - epoch % max(run.log_interval, 1))
        self.evaluate = interval(run.evaluate_interval)
        self.replay = interval(run.replay_interval)
        self._monitor, self._monitor_due = monitor, interval(run.monitor_interval)
        self._speed = Speed(steps)
        self._seconds, self._began = seconds, time.monotonic()
        self._boundary_s = self._boundary_began = 0.0
        self._first_update: Row = {}

    def seconds(self) -> float:
        """Returns the run's seconds of training, over all its sessions."""
        return self._seconds + time.monotonic() - self._began

    def begin_boundary(self) -> float | None:
        """Starts timing a boundary. Returns the process's age in seconds after the first update, else None."""
        self._boundary_began = time.perf_counter()
        if self._first_update:
            return None
        self._first_update = {"perf/first_update_s": process_age()}
        return self._first_update["perf/first_update_s"]

    def row(self, epoch: int, steps: int, *, last: bool = False) -> Row:
        """Returns perf/* figures: speed, the last boundary, the first update and, if due, the machine's.

        Args:
            last: see `Interval.due`.
        """
        row = self._speed.row(steps) | {"perf/time/boundary": self._boundary_s} | self._first_update
        if self._monitor is not None and self._monitor_due.due(epoch, last=last):
            row |= self._monitor.read()
        return row

    def leave_out(self, seconds: float) -> None:
        """Excludes the last `seconds` from the speed and from this boundary: nothing was trained in them."""
        self._speed.leave_out(seconds)
        self._boundary_began += seconds

    def end_boundary(self) -> None:
        """Stops timing the boundary."""
        self._boundary_s = time.perf_counter() - self._boundary_began
