"""Ends a run on Ctrl-C, SIGTERM or request: at once, but never while something is being saved.

    with Interrupt() as interrupt:
        while …:
            with interrupt.allowed():     # a signal raises Interrupted right here, inside a long epoch
                algorithm.collect()
                algorithm.update()
            …                             # a signal during bookkeeping waits for the next `allowed`

    interrupt.request("the machine ends in 2 minutes", 143)      # the same, from any thread

A second Ctrl-C quits without waiting (KeyboardInterrupt from wherever it is); a third kills the process.
Wrappers that pass a terminal's Ctrl-C on make two signals of one: a second within `ECHO_S` does not count.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

from metta_fast.contracts.interrupt import end_process

ECHO_S = 0.5
"""A repeated signal within this many seconds is taken for an echo of the first."""


@dataclass(frozen=True)
class Reason:
    """Why a run is to end before it is done."""

    text: str
    exit_code: int | None
    """None: the run's own code for this signal."""
    signum: int | None = None
    """The signal, or None: `Interrupt.request`."""


class Interrupted(KeyboardInterrupt):
    """Raised when the run must stop. (A KeyboardInterrupt, so that no `except Exception` swallows it.)"""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.text)
        self.reason = reason

    @property
    def signum(self) -> int | None:
        return self.reason.signum


class Interrupt:
    """Handles SIGINT, SIGTERM and SIGHUP while the context lasts (none outside the main thread)."""

    def __init__(self, also: Sequence[int] = (), patience_s: float = 0.0) -> None:
        """Changes no handler yet.

        Args:
            patience_s: seconds in which the run is to end by itself, at a boundary that all its processes reach
                (`agree`); only then Interrupted is raised in the middle of an epoch. 0: at once.
            also: other signals that end a run, such as a scheduler's; left alone if the program handles them.
        """
        self._also = also
        self.reason: Reason | None = None
        """The first reason that came."""
        self._allowed: int | None = None
        """The thread that is within `allowed`."""
        self._since = 0.0
        self._repeats = 0
        self._lock = threading.Lock()
        self._before: dict[int, Any] = {}
        self._patience_s = patience_s
        self._due = patience_s <= 0
        """Whether `reason` ends the run now."""
        self._timer: threading.Timer | None = None

    @property
    def signum(self) -> int | None:
        """The first signal, or None."""
        return self.reason.signum if self.reason else None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                before = signal.getsignal(signum)
                if before is None or (signum == signal.SIGHUP and before == signal.SIG_IGN):
                    continue  # not Python's to give back; nohup
                self._before[signum] = before
                signal.signal(signum, self._handle)
            for number in self._also:
                if signal.getsignal(number) == signal.SIG_DFL:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:  # a request on its way has sent its signal
            before, self._before = self._before, {}
        for signum, handler in before.items():
            signal.signal(signum, handler)

    def request(self, reason: str, exit_code: int) -> None:
        """Ends the run as SIGTERM does: the last snapshot is saved. Can be called from any thread; the first reason
        counts.

        Args:
            reason: what the log says.
            exit_code: what the run ends with.
        """
        with self._lock:
            if self.reason is not None:
                return
            self.reason, self._since = Reason(reason, exit_code), time.monotonic()
            self._repeats = -1  # the next Ctrl-C is the first
            if not self._due:
                self._wait()
                return
            here = self._allowed == threading.get_ident()
            if not here and signal.SIGTERM in self._before:  # wakes the main thread, wherever it waits
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        if here:
            self._raise()

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Lets a signal raise Interrupted at once inside the block; an earlier one raises on entry."""
        self._allowed = threading.get_ident()
        try:
            self.check()
            yield
        finally:
            self._allowed = None

    def check(self) -> None:
        """Raises Interrupted if there is a reason to end the run."""
        if self.reason is not None and self._due:
            self._raise()

    def agree(self, reason: Reason) -> None:
        """Ends the run for a reason that all its processes know at the same boundary. Raises Interrupted."""
        if self.reason is None:
            self.reason, self._since = reason, time.monotonic()
        self._due = True
        self._raise()

    def _wait(self) -> None:
        """Ends the run in the middle of an epoch if its patience ends first."""

        def late() -> None:
            self._due = True
            if signal.SIGTERM in self._before:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

        self._timer = threading.Timer(self._patience_s, late)
        self._timer.daemon = True
        self._timer.start()

    def _raise(self) -> None:
        assert self.reason is not None
        self._allowed = None
        raise Interrupted(self.reason)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.reason is None:
            name = "Ctrl-C" if signum == signal.SIGINT else signal.Signals(signum).name
            self.reason, self._since = Reason(name, None, signum), now
            if not self._due:
                self._wait()
        elif signum == signal.SIGINT and now - self._since > ECHO_S:
            self._repeats += 1
            if self._repeats > 1:
                end_process(128 + signal.SIGINT)
            if self._repeats > 0:
                raise KeyboardInterrupt
        if self._allowed is not None and self._due:
            self._raise()
