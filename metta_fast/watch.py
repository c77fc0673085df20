"""`metta-fast monitor`: the machine and a run's newest figures, live, from a second terminal.

    metta-fast monitor                  # the run last written to in runs/, and the ones that come after it
    metta-fast monitor runs/<name>      # that run, by folder or name; of a folder of runs the newest
    metta-fast monitor --once           # print once, in plain lines (also where the output is no terminal)

It only reads: the run's files, the operating system and the NVIDIA driver; the training does not notice.
Ctrl-C ends it, the run goes on.

Place in the flow: cli.py calls `run_monitor_command`. Its panels come from watch_view.py.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from metta_fast import nvml
from metta_fast.clock import process_start
from metta_fast.config import RunConfig
from metta_fast.errors import UserError
from metta_fast.metrics_tail import MetricsTail
from metta_fast.monitor import Processes
from metta_fast.options import OptionParser
from metta_fast.run_dir import RunDir, runs

LOOK_S = 2.0
"""Seconds from one look for a newer run to the next."""


@dataclass
class Machine:
    """The cards and the processor, of all programs together."""

    cards: list[nvml.Card]
    note: str
    """Why there is no card."""
    rows: list[dict[str, float]] = field(default_factory=list)
    """Readings of each card (nvml.py)."""
    host: dict[str, float] = field(default_factory=dict)
    """perf/cpu_utilization of all cores, perf/memory_gb, perf/memory_percent."""

    @classmethod
    def find(cls) -> Machine:
        psutil.cpu_percent()  # counting starts here
        return cls(*nvml.open_cards())

    def poll(self) -> None:
        self.rows = [card.poll() for card in self.cards]
        memory = psutil.virtual_memory()
        self.host = {
            "perf/cpu_utilization": psutil.cpu_percent(),
            "perf/memory_gb": (memory.total - memory.available) / (1 << 30),
            "perf/memory_percent": memory.percent,
        }


class Watched:
    """A run as its files and its process tell."""

    def __init__(self, folder: RunDir) -> None:
        self.folder = folder
        self.metrics = MetricsTail(folder.metrics)
        self.total = 0
        """trainer.total_timesteps; 0: not known."""
        self.state = ""
        """Whether it is training, in words."""
        self.readings: dict[str, float] = {}
        """perf/cpu_utilization, perf/memory_… of its processes, if they run on this machine."""
        self._owner = ""
        self._processes: Processes | None = None

    def poll(self) -> None:
        """Read what is new.

        Raises:
            UserError: its files cannot be read.
        """
        try:
            self.metrics.update()
            found = re.search(r"^  total_timesteps: (\d+)$", self.folder.config.read_text(), re.MULTILINE)
            self.total = int(found[1]) if found else self.total
        except FileNotFoundError:
            pass  # not written yet
        except OSError as error:
            raise UserError(f"cannot read {error.filename}: {error.strerror}") from error
        self.state = self._process() + self._age()

    def _process(self) -> str:
        """Find the process that trains it by the lock's text (run_dir.py), and read its use of the machine."""
        lock = self.folder.path / "lock"
        try:
            owner = lock.read_text()
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
                    raise psutil.NoSuchProcess(pid)  # another program has the number now
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
    """The run that `name` means (a folder, a name in runs/, a folder of runs); None: the newest in runs/.

    Raises:
        UserError: a name was given and there is no such run.
    """
    root = RunConfig().dir
    if name is None:
        return next(iter(runs(root)), None)
    for path in (Path(name).expanduser(), Path(root) / name):
        if (path / "config.yaml").exists():
            return RunDir(path)
        if path.is_dir() and (found := runs(str(path))):
            return found[0]
    known = ", ".join(run.name for run in runs(root)[:5]) or "none"
    raise UserError(f"no run {name}; give a run's folder, or its name. Newest runs in {root}: {known}")


class Watch:
    """The machine and the run; `poll()`, then show it."""

    def __init__(self, name: str | None) -> None:
        """Raises UserError if `name` is no run."""
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
        """Turn to a newer run, if there is one."""
        with contextlib.suppress(OSError, ValueError):  # a folder that was removed while it was looked at
            newest = find_run(None)
            if newest and (self.run is None or newest.path != self.run.folder.path):
                self.run = Watched(newest)


def run_monitor_command(words: Sequence[str]) -> int:
    """`metta-fast monitor`; 0, or UserError."""
    from metta_fast.watch_view import plain, screen

    given = _parser().parse_args(words)
    if not 0.1 <= given.interval <= 3600:
        raise UserError(f"--interval {given.interval:g}: expected seconds, 0.1 … 3600")
    watch = Watch(given.run)
    if given.once or not sys.stdout.isatty():
        watch.poll()
        time.sleep(1.0)  # utilisation is the mean of a second
        watch.poll()
        print(plain(watch))
        return 0
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, auto_refresh=False, screen=True) as live,
    ):
        pause = min(given.interval, 0.2)  # the first figures of use are soon there
        while True:
            watch.poll()
            live.update(screen(watch, console.width, console.height), refresh=True)
            time.sleep(pause)
            pause = given.interval
    return 0


def _parser() -> argparse.ArgumentParser:
    found = OptionParser(
        prog="metta-fast monitor",
        description="The machine and a run's newest figures, live. Ctrl-C ends it; the run goes on.",
    )
    found.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        help="a run's folder or name, or a folder of runs (default: the newest in runs/)",
    )
    found.add_argument(
        "--once", action="store_true", help="print once in plain lines (also if the output is no terminal)"
    )
    found.add_argument(
        "--interval", type=float, default=1.0, help="seconds from one look to the next (default: 1)"
    )
    return found


def _span(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 min`, `5 h`, `2 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
