"""Tells whoever waits that environments are being made one by one, so that a slow start is not taken for a hang.

on_made(lambda: …)       # a worker process listens
made()                   # a batch calls it for each environment that it has made
"""

from __future__ import annotations

from collections.abc import Callable

_listener: Callable[[], None] | None = None


def on_made(listener: Callable[[], None] | None) -> None:
    """Sets what `made` calls in this process; None: nothing."""
    global _listener
    _listener = listener


def made() -> None:
    """Says that one more environment was made."""
    if _listener is not None:
        _listener()
