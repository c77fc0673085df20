"""Tells the user's Ctrl-C or signal from what an environment's code raises by itself."""

from __future__ import annotations

import dis
import signal
import threading
from collections.abc import Iterator
from types import CodeType, TracebackType

RAISE = dis.opmap["RAISE_VARARGS"]
"""The instruction of a `raise` statement. Python runs signal handlers between other instructions."""


def is_interrupt(error: BaseException) -> bool:
    """Returns whether an exception that came out of an environment's code is the user's Ctrl-C or signal.

    Signals raise KeyboardInterrupt in the main thread alone, and never at a `raise` statement of the interrupted
    code. Everything else is the environment's failure, SystemExit included. A KeyboardInterrupt that was raised while
    another one was handled is what the other one is.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    seen: BaseException | None = error
    while isinstance(seen, KeyboardInterrupt):
        if _came_from_outside(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _came_from_outside(error: KeyboardInterrupt) -> bool:
    entries = list(_entries(error.__traceback__))
    if not entries:  # raised by the interpreter or a C library, not by a statement
        return True
    handlers = _handlers()
    if any(entry.tb_frame.f_code in handlers for entry in entries):
        return True
    last = entries[-1]
    return last.tb_frame.f_code.co_code[last.tb_lasti] != RAISE


def _entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _handlers() -> set[CodeType]:
    """Returns the code of this process's signal handlers that are written in Python."""
    found = set()
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        code = getattr(getattr(handler, "__func__", handler), "__code__", None)
        if isinstance(code, CodeType):
            found.add(code)
    return found
