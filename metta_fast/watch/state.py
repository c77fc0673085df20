"""Collects the state of the machine and of a run for `metta-fast monitor`."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from metta_fast.config.keys import RunConfig
from metta_fast.contracts.errors import UserError
from metta_fast.machine import nvml
from metta_fast.machine.monitor import Processes
from metta_fast.machine.process_clock import process_start
from metta_fast.metrics.advice import Advisor
from metta_fast.storage.run_folder import RunDir, find_folders, runs
from metta_fast.storage.user_files import exists, read_text
from metta_fast.watch.metrics_tail import MetricsTail

LOOK_S = 2.0
"""Seconds between two searches for a newer run."""


@dataclass
class Machine:
    """Measures the GPUs and the processor, for all programs together."""

    cards: list[nvml.Card]
    note: str
    """Reason why there is no GPU, or ""."""
    rows: list[dict[str, float]] = field(default_factory=list)
    """Readings of each GPU (machine/nvml.py)."""
    host: dict[str, float] = field(default_factory=dict)
    """perf/cpu_utilization of all cores, perf/memory_gb, perf/memory_percent."""

    @classmethod
    def find(cls) -> Machine:
        """Opens the GPUs and starts measuring the CPU's utilisation."""
        try:
            psutil.cpu_percent()  # measuring starts with the first call
        except OSError as error:
            raise UserError(
                f"monitor needs {error.filename}, which cannot be read here ({error.strerror}): start it where /proc "
                "is mounted, outside of this container"
            ) from error
        return cls(*nvml.open_cards())

    def poll(self) -> None:
        """Updates all readings."""
        self.rows = [card.poll() for card in self.cards]
        memory = psutil.virtual_memory()
        self.host = {
            "perf/cpu_utilization": psutil.cpu_percent(),
            "perf/memory_gb": (memory.total - memory.available) / (1 << 30),
            "perf/memory_percent": memory.percent,
        }


class Watched:
    """Reads a run's state from its files and its process."""

    def __init__(self, folder: RunDir) -> None:
        self.folder = folder
        self.metrics = MetricsTail(folder.metrics)
        self.total = 0
        """trainer.total_timesteps; 0: unknown."""
        self.state = ""
        """Sentence that says whether the run is training."""
        self.readings: dict[str, float] = {}
        """perf/cpu_utilization and perf/memory_… of its processes, if they run on this machine."""
        self.advisor = Advisor(first_s=5.0)
        """What would make the run faster, while it trains."""
        self._owner = ""
        self._processes: Processes | None = None

    def poll(self) -> None:
        """Reads new metrics, and whether the run is training.

        Raises:
            UserError: a file of the run cannot be read.
        """
        self.folder.check_links()
        try:
            self.metrics.update()
            found = re.search(r"^  total_timesteps: (\d+)$", _text(self.folder.config), re.MULTILINE)
            self.total = int(found[1]) if found else self.total
        except FileNotFoundError:
            pass  # not written yet
        except OSError as error:
            raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
        self.state = self._process() + self._age()
        self.advisor.take(self.metrics.seen)

    @property
    def training(self) -> bool:
        """Whether a process trains it."""
        return self.state.startswith("training")

    def _process(self) -> str:
        """Finds the training process by the lock's text (storage/run_lock.py), and measures it."""
        lock = self.folder.path / "lock"
        try:
            owner = lock.read_text(errors="replace")
        except OSError:
            owner = ""
        known = re.fullmatch(r"process (\d+) on (.*)\nstarted (.*)\n", owner)
        if known is None:
            self._owner, self._processes, self.readings = owner, None, {}
            return "not training"
        pid, host = int(known[1]), known[2]
        if host != socket.gethostname():
            self._owner, self._processes, self.readings = owner, None, {}
            return f"training on {host}"
        try:
            if owner != self._owner:
                if str(process_start(pid)) != known[3]:
                    raise psutil.NoSuchProcess(pid)  # the number was reused by another program
                self._owner, self._processes = owner, Processes(pid)
            if self._processes is not None:
                self.readings = self._processes.poll()
                return f"training, process {pid}"
        except psutil.Error:
            self._owner, self._processes, self.readings = owner, None, {}
        return f"not training, process {pid} is gone"

    def _age(self) -> str:
        try:
            age = max(time.time() - self.folder.metrics.stat().st_mtime, 0.0)
        except OSError:
            return ", no metrics yet"
        return f", last metrics {_span(age)} ago" if self.metrics.seen else ", no metrics yet"


def find_run(name: str | None) -> RunDir | None:
    """Finds a run by folder, by name in runs/, or as the newest in a folder of runs.

    Args:
        name: None: the newest run in runs/, or None if there is none.

    Raises:
        UserError: a name was given and there is no such run.
    """
    root = RunConfig().dir
    if name is None:
        return next(iter(runs(root)), None)
    for path in find_folders(name, root):
        if exists(path / "config.yaml"):
            return RunDir(path)
        if found := runs(str(path)):
            return found[0]
    known = ", ".join(run.name for run in runs(root)[:5]) or "none"
    raise UserError(f"no run {name}; give a run's folder or its name. Newest runs in {root}: {known}")


class Watch:
    """Collects the machine and the run; call `poll()` before drawing."""

    def __init__(self, name: str | None) -> None:
        """Finds the run `name` (see `find_run`). Raises UserError if there is no such run."""
        self._name = name
        self.machine = Machine.find()
        folder = find_run(name)
        self.run = Watched(folder) if folder else None
        self._looked = time.monotonic()

    def poll(self) -> None:
        if self._name is None and time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            self._follow()
        self.machine.poll()
        if self.run is not None:
            self.run.poll()

    def _follow(self) -> None:
        """Switches to a newer run, if there is one."""
        with contextlib.suppress(OSError, ValueError):  # a folder was removed during the search
            newest = find_run(None)
            if newest and (self.run is None or newest.path != self.run.folder.path):
                self.run = Watched(newest)


def _text(path: Path) -> str:
    """Reads a run's file, which may be half-written. Raises FileNotFoundError; UserError: it is no text."""
    path.stat()
    return read_text(path, str(path))


def _span(seconds: float) -> str:
    """Formats a duration as `0.4 s`, `12 s`, `3 min`, `5 h` or `2 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
