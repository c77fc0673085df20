"""Measures the machine while a run trains: CPU and memory of its processes, and its GPU.

    perf/cpu_utilization   percent of the allowed cores, this process and its workers, since the last reading
    perf/memory_gb         resident memory of this process and its workers (shared pages counted in each)
    perf/memory_percent    the same in percent of the allowed memory (cgroup limit or physical)
    perf/gpu_…             see nvml.py; the utilisation is the mean since the last reading

A thread polls once a second (`POLL_S`), so a slow driver never stalls the training.

Place in the flow: run/trainer.py reads at `run.monitor_interval`; the dashboard shows the last reading.

    monitor = Monitor(torch.device("cuda"));  …;  monitor.read();  …;  monitor.close()
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

import psutil

from metta_fast.machine import hardware, nvml

if TYPE_CHECKING:
    import torch

GB = 1 << 30
POLL_S = 1.0
LIST_EVERY = 10
"""Polls between two listings of a process's children; a listing reads all of /proc."""


class Monitor:
    """Polls in a background thread until `close()`, or until it is garbage-collected."""

    def __init__(self, device: torch.device | None = None, *, poll_s: float = POLL_S) -> None:
        """Starts the thread. A GPU that cannot be read is logged.

        Args:
            device: the GPU to read; None or not CUDA: no GPU readings.
            poll_s: seconds between two polls.
        """
        card: nvml.Card | None = None
        if device is not None and device.type == "cuda":
            card, why = nvml.card_of(device)
            if why:
                logging.getLogger(__name__).info(why)
        self._readings = Readings()
        stop = threading.Event()
        processes: Processes | None = None
        try:
            processes = Processes(os.getpid())
        except (psutil.Error, OSError) as error:
            logging.getLogger(__name__).warning(
                "warning: /proc cannot be read, CPU and memory are not shown: %s", error
            )
        work = (self._readings, processes, card, poll_s, stop)
        self._thread = threading.Thread(target=_watch, args=work, name="monitor", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, stop.set)

    def read(self) -> dict[str, float]:
        """Returns the newest readings without waiting; those that this machine lacks are absent.

        The result is empty before the first poll has ended, some milliseconds after the start. Without a new poll
        since the last reading, the same values are returned again.
        """
        return self._readings.read()

    def close(self) -> None:
        """Ends the thread; may be called twice."""
        self._end()
        self._thread.join(timeout=5)  # a hanging driver must not delay the end of a run


class Readings:
    """Joins the polls since the last reading; shared by the monitor and its thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._row: dict[str, float] = {}
        self._utilization: dict[str, tuple[float, float]] = {}
        """Name → (sum of percent × seconds, sum of seconds) over the polls since the last reading."""

    def add(self, row: dict[str, float], seconds: float) -> None:
        """Adds a poll, which took place `seconds` after the one before."""
        with self._lock:
            for name in ("perf/cpu_utilization", "perf/gpu_utilization"):
                if name in row:
                    total, before = self._utilization.get(name, (0.0, 0.0))
                    self._utilization[name] = (total + row.pop(name) * seconds, before + seconds)
            self._row |= row

    def read(self) -> dict[str, float]:
        with self._lock:
            self._row |= {name: total / seconds for name, (total, seconds) in self._utilization.items()}
            self._utilization.clear()
            return dict(self._row)


def _watch(
    readings: Readings,
    processes: Processes | None,
    card: nvml.Card | None,
    poll_s: float,
    stop: threading.Event,
) -> None:
    """Runs the thread. Holds no Monitor, so that one that was never closed can be collected."""
    pause = min(poll_s, 0.05)  # the first reading comes early
    last = time.monotonic()
    while not stop.wait(pause):
        pause = poll_s
        try:
            row = {} if processes is None else processes.poll()
        except (psutil.Error, OSError) as error:
            logging.getLogger(__name__).warning("monitoring of the machine stopped: %s", error)
            return
        if card is not None:
            row |= card.poll()
        now = time.monotonic()
        readings.add(row, now - last)
        last = now


class Processes:
    """Measures CPU time and memory of a process and its children. Not thread-safe."""

    def __init__(self, pid: int) -> None:
        """Finds the process. Raises psutil.NoSuchProcess if it does not exist."""
        self._process = psutil.Process(pid)
        self._cores = hardware.allowed_cores()
        self._memory = hardware.memory_limit()
        self._polls = 0
        self._busy: dict[psutil.Process, float] = {}
        """CPU seconds of each process at the last poll."""
        self._time = time.monotonic()
        self._use()

    def poll(self) -> dict[str, float]:
        """Returns perf/cpu_utilization since the last poll, perf/memory_gb and perf/memory_percent.

        Raises:
            psutil.NoSuchProcess: the process has ended.
        """
        if not self._process.is_running():
            raise psutil.NoSuchProcess(self._process.pid)
        before, self._time = self._time, time.monotonic()
        seconds, memory = self._use()
        return {
            "perf/cpu_utilization": 100 * seconds / (max(self._time - before, 1e-3) * self._cores),
            "perf/memory_gb": memory / GB,
            "perf/memory_percent": 100 * memory / self._memory,
        }

    def _use(self) -> tuple[float, int]:
        """Returns the CPU seconds since the last call (processes listed by then), and the resident bytes."""
        if self._polls % LIST_EVERY == 0:
            self._children = self._process.children(recursive=True)
        self._polls += 1
        busy, memory = {}, 0
        for process in (self._process, *self._children):
            try:
                busy[process] = sum(process.cpu_times()[:2])
                memory += process.memory_info().rss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # it ended between listing and reading
        seconds = sum(now - self._busy.get(process, now) for process, now in busy.items())
        self._busy = busy
        return seconds, memory
