"""Runs in a child process (see child_handle.py): builds an object, then answers one message after another."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from metta_fast.machine.idle_threads import let_idle_threads_sleep


class Served(Protocol):
    """An object that answers messages: {"do": name, …} calls its method `name` with the other keys."""

    def ready(self) -> dict[str, Any]:
        """Describes the object; the answer to the message that built it."""

    def close(self) -> None:
        """Frees its resources."""


def one_line(error: BaseException) -> str:
    """Formats an exception in one line."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def serve(build: Callable[..., Served]) -> None:
    """Builds the object that the first message describes, then answers messages until the pipe ends."""
    let_idle_threads_sleep()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not mix with the answers
    built: Served | None = None
    try:
        for line in sys.stdin:
            message = json.loads(line)
            act = message.pop("do")
            try:
                if act == "build":
                    built = build(**message)
                    answer = built.ready()
                else:
                    answer = getattr(built, act)(**message)
            except Exception as error:
                traceback.print_exc()
                answer = {"error": one_line(error)}
            with contextlib.suppress(BrokenPipeError):
                answers.write(json.dumps(answer) + "\n")
    finally:
        if built is not None:
            built.close()
