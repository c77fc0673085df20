"""Provides PufferLib's small helpers: nested dicts by path, quiet calls."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any


def unroll_nested_dict(d: Any) -> Iterator[tuple[str, Any]]:
    """Yields ("a/b", value) for each value of a dict of dicts; nothing for anything else."""
    for key, value in d.items() if isinstance(d, dict) else ():
        if isinstance(value, dict):
            yield from ((f"{key}/{inner}", item) for inner, item in unroll_nested_dict(value))
        else:
            yield key, value


def silence_warnings(
    original_func: Callable[..., Any], category: Any = DeprecationWarning
) -> Callable[..., Any]:
    """Returns the function without its warnings of one category."""

    @wraps(original_func)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=category)
            return original_func(*args, **kwargs)

    return quiet


class Suppress:
    """Discards what Python and C write to stdout and stderr while the context lasts."""

    def __enter__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._kept = [os.dup(1), os.dup(2)]
        nothing = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2):
            os.dup2(nothing, fd)
        os.close(nothing)
        self._streams = sys.stdout, sys.stderr
        self._null = open(os.devnull, "w")
        sys.stdout = sys.stderr = self._null

    def __exit__(self, *_: object) -> None:
        sys.stdout, sys.stderr = self._streams
        self._null.close()
        for fd, kept in enumerate(self._kept, 1):
            os.dup2(kept, fd)
            os.close(kept)
