"""Tells the user's Ctrl-C or signal from what an environment's code raises by itself, and keeps that code from ending
this process without a word.

    except BaseException as error:
        if is_interrupt(error):
            raise
    with no_silent_exit():
        …                       # os._exit(0), in any thread → SystemExit: os._exit(0) was called
"""

from __future__ import annotations

import dis
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, TracebackType
from typing import NoReturn

RAISE = dis.opmap["RAISE_VARARGS"]
"""The instruction of a `raise` statement. Python runs signal handlers between other instructions."""
end_process = os._exit
"""Ends this process at once, for our own use."""
_holders: list[int] = []
"""Process numbers of the `no_silent_exit` that are open, one within another."""


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


@contextmanager
def no_silent_exit() -> Iterator[None]:
    """Makes `os._exit` raise SystemExit in this process while the context lasts, so that whoever calls a user's code
    names it, as for every other exception.

    Processes that are forked from this one keep the true function: multiprocessing and others end their children by
    it. What a C library does is not seen.
    """
    _holders.append(os.getpid())
    os._exit = _refuse
    try:
        yield
    finally:
        _holders.pop()
        if not _holders:
            os._exit = end_process


def _refuse(status: int) -> NoReturn:
    if os.getpid() not in _holders:  # forked
        end_process(status)
    raise SystemExit(f"os._exit({status}) was called")
