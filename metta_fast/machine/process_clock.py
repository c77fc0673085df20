"""Ages of processes, by a clock that nobody sets: seconds since the machine began.

Everything else that lasts is measured by time.monotonic. The time of day is only written down (train.log, TensorBoard,
names of runs), never subtracted, as it may be set forwards and backwards while a run lasts.

Place in the flow: run_dir.py writes the start of the process that trains into the lock, watch.py compares;
trainer.py tells how long the first update took.
"""

from __future__ import annotations

import os
import time


def process_start(pid: int | str) -> float | None:
    """Seconds from the machine's start to the process's; None: there is no such process, or no /proc.

    pid: a number, or "self".
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except OSError:
        return None
    return ticks / float(os.sysconf("SC_CLK_TCK"))


def process_age() -> float:
    """Seconds since this process began, Python's own start included."""
    start = process_start("self")
    if start is not None:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - start
    import psutil  # not Linux: right unless the clock was set since

    return max(time.time() - psutil.Process().create_time(), 0.0)
