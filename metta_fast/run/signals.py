"""Ctrl-C and SIGTERM: stop at once, but never in the middle of something that must be whole.

    with Interrupt() as interrupt:
        while …:
            with interrupt.allowed():     # a signal raises Interrupted right here, inside a long epoch
                algorithm.collect()
                algorithm.update()
            …                             # a signal during bookkeeping waits for the next `allowed`

A second Ctrl-C quits without waiting (KeyboardInterrupt from wherever it is); a third kills the process.
Wrappers that pass a terminal's Ctrl-C on make two signals of one: a second within `ECHO_S` does not count.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

ECHO_S = 0.5
"""A repeated signal within so many seconds is taken for an echo of the first."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to stop. (A KeyboardInterrupt, so that no `except Exception` swallows it.)"""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class Interrupt:
    """Handlers of SIGINT, SIGTERM and SIGHUP while the context lasts (none outside the main thread)."""

    def __init__(self) -> None:
        self.signum: int | None = None
        """The first signal that came."""
        self._allowed = False
        self._since = 0.0
        self._repeats = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                before = signal.getsignal(signum)
                if before is None or (signum == signal.SIGHUP and before == signal.SIG_IGN):
                    continue  # not Python's to give back; nohup
                self._before[signum] = before
                signal.signal(signum, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, before in self._before.items():
            signal.signal(signum, before)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Within, a signal raises Interrupted at once; one that came before raises on entry."""
        self.check()
        self._allowed = True
        try:
            yield
        finally:
            self._allowed = False

    def check(self) -> None:
        """Raise Interrupted if a signal has come."""
        if self.signum is not None:
            raise Interrupted(self.signum)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.signum is None:
            self.signum, self._since = signum, now
            if self._allowed:
                self._allowed = False
                raise Interrupted(signum)
        elif signum == signal.SIGINT and now - self._since > ECHO_S:
            self._repeats += 1
            if self._repeats > 1:
                os._exit(128 + signal.SIGINT)
            raise KeyboardInterrupt
