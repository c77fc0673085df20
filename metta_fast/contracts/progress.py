"""Tells whoever waits that environments are being made one by one, so that a slow start is not taken for a hang.

on_made(lambda: …)       # a worker process listens
made()                   # a batch calls it for each environment that it has made
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

_listener: Callable[[], None] | None = None
_watch: Callable[[], AbstractContextManager[Any]] = nullcontext


def on_made(listener: Callable[[], None] | None) -> None:
    """Sets what `made` calls in this process; None: nothing."""
    global _listener
    _listener = listener


def made() -> None:
    """Says that one more environment was made."""
    if _listener is not None:
        _listener()


@contextmanager
def watched_by(watch: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Sets what `watched` returns in this process while the context lasts."""
    global _watch
    before, _watch = _watch, watch
    try:
        yield
    finally:
        _watch = before


def watched() -> AbstractContextManager[Any]:
    """Returns the context in which an environment is made."""
    return _watch()
