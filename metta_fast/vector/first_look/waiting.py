"""Finds out whether a step waits, for a socket, another process or a clock, or computes.

    waits = step_waits(step, seconds)          # True: it computes for less than half of its time
    overlap = steps_overlap(step, seconds)     # True: meanwhile other threads of the process run

Environments that wait can step in far more threads or workers than there are cores. Place in the flow: the child of
__init__.py asks; resolve/derived/step_cost.py makes env.step_waits of the answers, and vector/choose.py a backend of
that.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import psutil

LEAST_S = 200e-6
"""Seconds of a step below which it counts as computing: switching between threads takes as long as it might wait."""
TIMED_S = 0.1
"""Seconds for which steps are watched, at least one step."""
BUSY = 0.5
"""Share of a step's time from which it counts as computing."""
LOOKS = 8
"""Times that the other thread wants to run within a step."""
ENOUGH = 0.2
"""Share of the steps in which it has to run: on a busy machine it often comes too late."""
PATIENCE_S = 4.0
"""Seconds, besides four steps, after which steps in another thread count as hanging."""


def step_waits(step: Callable[[], None], seconds: float) -> bool:
    """Returns whether a step mostly waits.

    Other programs can only make a step look idle that computes: the step in which it computes most counts, and a
    thread that never gives its core up by itself does not wait. The processor time of all threads counts, and that of
    processes that the environment has started.

    Args:
        step: steps the environment once.
        seconds: how long that takes.
    """
    if seconds < LEAST_S:
        return False
    busiest, count, before, given_up = 0.0, 0, _processes(), _given_up()
    begin = time.perf_counter()
    while count == 0 or time.perf_counter() - begin < TIMED_S:
        start, used = time.perf_counter(), time.process_time()
        step()
        used, took = time.process_time() - used, time.perf_counter() - start
        count += 1
        if took > seconds / 2:  # else it was a reset
            busiest = max(busiest, used / took)
    others = (_processes() - before) / (time.perf_counter() - begin)
    return busiest + others < BUSY and 2 * (_given_up() - given_up) >= count


def steps_overlap(step: Callable[[], None], seconds: float) -> bool:
    """Returns whether the environment steps in a thread that is not the main one, and other threads run meanwhile.

    A library that waits without releasing Python's lock (the GIL) stops them. An environment that raises in another
    thread, as asyncio's and SQLite's may, does not overlap either.
    """
    started: list[float] = []  # when the present step began
    seen: list[bool] = []  # of each step: whether this thread ran in its middle
    failed: list[BaseException] = []
    ends = time.perf_counter() + TIMED_S

    def steps() -> None:
        try:
            while not seen or time.perf_counter() < ends:
                seen.append(False)
                started.append(time.perf_counter())
                step()
                started.clear()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=steps, daemon=True)
    thread.start()
    limit = time.perf_counter() + PATIENCE_S + 4 * seconds
    while thread.is_alive() and time.perf_counter() < limit:
        time.sleep(seconds / LOOKS)
        now, since = time.perf_counter(), started[:]
        if since and 0.1 * seconds < now - since[0] < 0.9 * seconds:
            seen[-1] = True
    return not thread.is_alive() and not failed and sum(seen) >= ENOUGH * len(seen)


def _given_up() -> int:
    """Returns how often this thread has given up its core to wait for something."""
    import resource

    who = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)
    return resource.getrusage(who).ru_nvcsw


def _processes() -> float:
    """Returns the processor seconds of the processes that this one has started."""
    total = 0.0
    for child in psutil.Process(os.getpid()).children(recursive=True):
        try:
            total += sum(child.cpu_times()[:2])
        except psutil.Error:
            continue
    return total
