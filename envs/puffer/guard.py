"""Keeps PufferLib from changing the process: importing its trainer does so.

    with unchanged():
        creator = load_named("my_module:make", "env.factory")     # which may import pufferlib.pufferl

That import turns RuntimeWarnings into errors, has Ctrl-C end the program without saving anything, and replaces the
function that shows exceptions.
"""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def unchanged() -> Iterator[None]:
    """Restores warning filters, Ctrl-C and the exceptions' hook at the end of the context."""
    hook = sys.excepthook
    main = threading.current_thread() is threading.main_thread()
    interrupt = signal.getsignal(signal.SIGINT) if main else None
    try:
        with warnings.catch_warnings():
            yield
    finally:
        sys.excepthook = hook
        if main and interrupt is not None and signal.getsignal(signal.SIGINT) is not interrupt:
            signal.signal(signal.SIGINT, interrupt)
