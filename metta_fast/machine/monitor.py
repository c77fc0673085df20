"""Readings of the machine while a run trains: its processes' CPU and memory, its GPU.

    perf/cpu_utilization   percent of the cores allowed, this process and its workers, since the last reading
    perf/memory_gb         resident memory of this process and its workers (shared pages counted in each)
    perf/memory_percent    the same, of the memory allowed (cgroup limit or physical)
    perf/gpu_…             see nvml.py; the utilisation is the mean since the last reading

A thread looks once a second (`POLL_S`): a driver that takes its time never stalls the training.

Place in the flow: trainer.py reads at `run.monitor_interval`, the dashboard shows the last reading.

    monitor = Monitor(torch.device("cuda"));  …;  monitor.read();  …;  monitor.close()
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

import psutil

from metta_fast.machine import hardware, nvml

if TYPE_CHECKING:
    import torch

GB = 1 << 30
POLL_S = 1.0
LIST_EVERY = 10
"""Polls from one listing of a process's children to the next: it reads all of /proc."""


class Monitor:
    """Looks in the background from now on, until `close()`."""

    def __init__(self, device: torch.device | None = None, *, poll_s: float = POLL_S) -> None:
        """`device` None or not CUDA: no GPU figures. A card that cannot be read is told in the log."""
        self._processes = Processes(os.getpid())
        self._card: nvml.Card | None = None
        if device is not None and device.type == "cuda":
            self._card, why = nvml.card_of(device)
            if why:
                logging.getLogger(__name__).info(why)
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._row: dict[str, float] = {}
        self._utilization: dict[str, tuple[float, float]] = {}
        """Name → sum of percent × seconds, and seconds, over the polls since the last reading."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="monitor", daemon=True)
        self._thread.start()

    def read(self) -> dict[str, float]:
        """The readings above as last seen, at once; figures that this machine cannot give are absent.

        Before the first poll has ended (some milliseconds after the start) nothing is there yet. With no new
        poll since the last reading, its figures come again.
        """
        with self._lock:
            self._row |= {name: total / seconds for name, (total, seconds) in self._utilization.items()}
            self._utilization.clear()
            return dict(self._row)

    def close(self) -> None:
        """End the thread; may be called twice."""
        self._stop.set()
        self._thread.join(timeout=5)  # a driver that hangs must not hold up the end of a run

    def _watch(self) -> None:
        pause = min(self._poll_s, 0.05)  # so that a first reading is soon there
        last = time.monotonic()
        while not self._stop.wait(pause):
            pause = self._poll_s
            try:
                row = self._processes.poll()
            except psutil.Error as error:
                logging.getLogger(__name__).warning("no more readings of the machine: %s", error)
                return
            if self._card is not None:
                row |= self._card.poll()
            now = time.monotonic()
            seconds, last = now - last, now
            with self._lock:
                for name in ("perf/cpu_utilization", "perf/gpu_utilization"):
                    if name in row:
                        total, before = self._utilization.get(name, (0.0, 0.0))
                        self._utilization[name] = (total + row.pop(name) * seconds, before + seconds)
                self._row |= row


class Processes:
    """A process and its children, their CPU time and memory. Not for several threads at once."""

    def __init__(self, pid: int) -> None:
        """Raises psutil.NoSuchProcess if there is none with this number."""
        self._process = psutil.Process(pid)
        self._cores = hardware.allowed_cores()
        self._memory = hardware.memory_limit()
        self._polls = 0
        self._busy: dict[psutil.Process, float] = {}
        """CPU seconds of each at the last poll."""
        self._time = time.monotonic()
        self._use()

    def poll(self) -> dict[str, float]:
        """perf/cpu_utilization since the last poll, perf/memory_gb and perf/memory_percent.

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
        """CPU seconds since the last call of those that were there then, and bytes resident now."""
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
