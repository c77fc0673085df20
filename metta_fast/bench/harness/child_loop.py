"""A child's program (child.py): builds what it is told to, then answers one message after another."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from metta_fast.machine.idle_threads import let_idle_threads_sleep


def one_line(error: BaseException) -> str:
    """An exception in one line."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def serve(build: Callable[..., Any]) -> None:
    """Build what the first message says, and answer all others until the pipe ends."""
    let_idle_threads_sleep()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # prints of libraries must not mix with the answers
    built: Any = None
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
