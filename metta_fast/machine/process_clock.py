"""Measures the ages of processes in seconds since the machine's boot, a clock that is never set.

All other durations use time.monotonic. The time of day is only written (train.log, TensorBoard, names of runs) and
never subtracted, because it may be set forwards or backwards during a run.

Place in the flow: storage/run_lock.py writes the start of the training process into the lock, and watch/state.py
compares it; run/trainer.py logs the time from the start to the first update.
"""

from __future__ import annotations

import os
import time

IMPORTED = time.monotonic()


def process_start(pid: int | str) -> float | None:
    """Returns the process's start in seconds since boot, or None if there is no such process or no /proc.

    Args:
        pid: a number, or "self".
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except OSError:
        return None
    return ticks / float(os.sysconf("SC_CLK_TCK"))


def process_age() -> float:
    """Returns the seconds since this process started, including Python's own start; where no process can be looked at
    (a container that hides /proc), the seconds since this module was imported."""
    start = process_start("self")
    if start is not None:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - start
    import psutil  # not Linux: right unless the clock was set in the meantime

    try:
        return max(time.time() - psutil.Process().create_time(), 0.0)
    except (psutil.Error, OSError):
        return time.monotonic() - IMPORTED
