"""Ends a call in the main thread that takes too long, by an exception at the place where it is.

    with time_limit(60.0, "vector.worker_timeout_s"):
        …                                     # after 60 s: TookTooLong

A call that sleeps, waits or runs Python is ended; one that hangs inside a C library is not.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TookTooLong(BaseException):
    """Ends a call that took too long. (No Exception, so that no `except Exception` swallows it.)"""


NUMBER = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
"""The signal that wakes the main thread; SIGALRM is often in use."""


@contextmanager
def time_limit(seconds: float, key: str) -> Iterator[None]:
    """Raises TookTooLong in the block after so many seconds.

    There is no limit outside the main thread, and where the signal is in use already.

    Args:
        key: the configuration key that sets the limit, for the message.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main or signal.getsignal(NUMBER) is not signal.SIG_DFL:
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        if not over:
            raise TookTooLong(f"it took longer than {seconds:g} s ({key})")

    over = False
    timer = threading.Timer(seconds, signal.pthread_kill, (main.ident, NUMBER))
    timer.daemon = True
    before = signal.signal(NUMBER, ring)
    timer.start()
    try:
        yield
    finally:
        over = True
        timer.cancel()
        timer.join()
        signal.signal(NUMBER, before)
