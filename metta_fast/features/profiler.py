"""Measures the phases of an epoch, and records traces with torch's profiler on request.

    python run_optimized.py features=profiler
    touch runs/<name>/trace                  # or kill -USR1 <process>: the next epoch is recorded
                                             # into runs/<name>/traces/, which https://ui.perfetto.dev opens

    profile/epoch            seconds from one epoch's start to the next, mean of the last interval_epochs
    profile/<phase>          of these, in the phases of perf/time/…; profile/<phase>_max: the longest
    profile/other            outside all phases: metrics, checkpoints, evaluation, features

The stopwatch never waits for the GPU: a phase counts what the host launches and waits for (with environments on the
GPU, what the device itself timed). `sync=true` waits at the end of each phase.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

from metta_fast.algorithms.hooks import Context, Hooks
from metta_fast.contracts.errors import UserError
from metta_fast.features.every import every, whole_number

Handler = Callable[[int, FrameType | None], object] | int | None
"""A signal's handler."""
LOOK_S = 1.0
"""Seconds between two checks for the file `trace`."""


def add(
    hooks: Hooks, *, interval_epochs: int = 10, sync: bool = False, trace_from: int = 0, trace_epochs: int = 1
) -> None:
    """Measures times and records traces.

    Args:
        interval_epochs: number of epochs that the figures are means over; 0 switches the feature off.
        sync: wait for the GPU at the end of each phase.
        trace_from: epoch (as in train/epoch) from which a trace is recorded; 0: only on request.
        trace_epochs: number of epochs in a trace.

    Raises:
        UserError: a value out of range.
    """
    whole_number("features.profiler.interval_epochs", interval_epochs, 0)
    whole_number("features.profiler.trace_from", trace_from, 0)
    whole_number("features.profiler.trace_epochs", trace_epochs, 1)
    if not isinstance(sync, bool):
        raise UserError(f"features.profiler.sync={sync!r}: expected true or false")
    if interval_epochs == 0:
        return
    hooks.exact_times |= sync
    times = Times(every(interval_epochs))
    hooks.on_collect.append(times.begin)
    hooks.on_epoch.append(times)
    if hooks.folder is not None:
        trace = Trace(hooks.folder, trace_from, trace_epochs)
        hooks.on_collect.append(trace.begin)
        hooks.on_close.append(trace.close)


class Times:
    """Adds up the epochs' phases. An epoch is complete when the next one begins."""

    def __init__(self, due: Callable[[int], bool]) -> None:
        self.due = due
        self._began: float | None = None
        self._clear()

    def _clear(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._longest: dict[str, float] = defaultdict(float)
        self._epochs = 0

    def begin(self, context: Context) -> None:
        now = time.perf_counter()
        if self._began is not None:
            phases = context.timer.phases()
            epoch = now - self._began
            self._epochs += 1
            for name, seconds in {**phases, "epoch": epoch, "other": epoch - sum(phases.values())}.items():
                self._sums[name] += seconds
                self._longest[name] = max(self._longest[name], seconds)
        self._began = now

    def __call__(self, context: Context) -> dict[str, float]:
        row = {f"profile/{name}": seconds / self._epochs for name, seconds in self._sums.items()}
        row |= {f"profile/{name}_max": seconds for name, seconds in self._longest.items()}
        self._clear()
        return row


class Trace:
    """Records whole epochs with torch.profiler. SIGUSR1 asks for it as the file `trace` does."""

    def __init__(self, folder: Path, trace_from: int, epochs: int) -> None:
        self._flag, self._folder = folder / "trace", folder / "traces"
        self._from, self._count = trace_from, epochs
        self._asked = self._listens = self._took = False
        self._looked = 0.0
        self._profile: torch.profiler.profile | None = None
        self._first = 0
        self._log = logging.getLogger(__name__)

    def begin(self, context: Context) -> None:
        """Begins an epoch: ends a complete trace, starts a requested one."""
        number = context.epoch + 1
        if not self._listens:
            self._listen()
        if self._profile is not None and number >= self._first + self._count:
            self._write(number - 1)
        if number == self._from or (self._wanted() and self._profile is None):
            self._asked = False
            self._first = number
            self._profile = self._start()

    def close(self) -> None:
        """Writes an incomplete trace when the run ends."""
        if self._profile is not None:
            self._write(None)
        if self._took:
            signal.signal(signal.SIGUSR1, self._before)

    def _start(self) -> torch.profiler.profile:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        profile = torch.profiler.profile(activities=kinds)
        profile.start()
        return profile

    def _write(self, last: int | None) -> None:
        profile, self._profile = self._profile, None
        assert profile is not None
        profile.stop()
        name = f"epoch_{self._first}" + (f"-{last}" if last not in (None, self._first) else "")
        path = self._folder / f"{name}.json.gz"
        try:
            self._folder.mkdir(exist_ok=True)
            profile.export_chrome_trace(str(path))
        except OSError as error:
            self._log.warning("no trace: cannot write %s: %s", path, error.strerror)
            return
        self._log.info("trace %s; open it at https://ui.perfetto.dev", path)

    def _wanted(self) -> bool:
        now = time.monotonic()
        if not self._asked and now - self._looked >= LOOK_S:
            self._looked = now
            if self._flag.exists():
                self._flag.unlink(missing_ok=True)
                self._asked = True
        return self._asked

    def _listen(self) -> None:
        self._listens = True
        self._before: Handler = signal.SIG_DFL
        how = f"touch {self._flag}"
        free = signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL  # SLURM may end the run by it
        if threading.current_thread() is threading.main_thread() and free:
            self._before = signal.signal(signal.SIGUSR1, self._ask)
            self._took = True
            how += f", or kill -USR1 {os.getpid()}"
        self._log.info("profiler: for a trace, %s", how)

    def _ask(self, signum: int, frame: FrameType | None) -> None:
        self._asked = True
