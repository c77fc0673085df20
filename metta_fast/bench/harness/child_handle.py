"""Runs one measured configuration in a process of its own, with a time limit on every answer.

    parent                                         child: python -m metta_fast.bench.gpu.child_program
    {"do": "build", "kind": "train", …}      ──►   builds, burns in
                                             ◄──   {"ready": …}
    {"do": "round", …}                       ──►   {"steps_per_s": …}
    end of the pipe                          ──►   ends

Each configuration has its own process, because memory pools, torch's switches and compiled code belong to the process.
Compile caches on disk are shared. Between its turns a child sleeps on its pipe. A failure is raised as `Failed`: one
line, and the end of the child's output.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from metta_fast.contracts.closing import Closing
from metta_fast.machine import hardware
from metta_fast.machine.process_group import end_group

T = TypeVar("T")

BUILD_LIMIT_S = 300.0
"""Time limit for building and burning in with a cold compile cache."""
TURN_LIMIT_S = 90.0
"""Time limit for other answers."""
PATIENCE_S = 5.0
"""Seconds that a child has to exit after its pipe was closed."""
KILL_AT_END = ("sh", "-c", 'read line; kill -KILL "-$0"')
"""A program that kills the process group in its first argument when its input ends: if this process dies, however
that happens. A stopped child would not notice."""
WORKER = (sys.executable, "-m", "metta_fast.bench.gpu.child_program")


class Failed(Exception):
    """A child's configuration could not be measured."""

    def __init__(self, why: str, printed: str = "") -> None:
        super().__init__(why)
        self.why, self.printed = why, printed


class Child(Closing):
    """Starts a child process and talks to it; use it in a `with`."""

    def __init__(self, name: str, *, beside: int = 1, command: Sequence[str] = WORKER) -> None:
        """Starts the process.

        Args:
            name: name of the configuration.
            beside: number of children built at the same time, which share the cores for compiling.
            command: the child's program.
        """
        self.name = name
        threads = str(max(1, hardware.allowed_cores() // beside))
        with contextlib.ExitStack() as unless_started:
            self._stderr = unless_started.enter_context(tempfile.TemporaryFile("w+"))
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                start_new_session=True,
                env={"TORCHINDUCTOR_COMPILE_THREADS": threads} | os.environ,
            )
            unless_started.callback(end_group, self._process, 0.0)
            self._guard = subprocess.Popen(
                (*KILL_AT_END, str(self._process.pid)), stdin=subprocess.PIPE, start_new_session=True
            )
            unless_started.pop_all()  # close() closes it
        self._received = b""
        self._closed = False

    def ask(self, limit_s: float = TURN_LIMIT_S, **message: Any) -> dict[str, Any]:
        """Sends a message and waits for its answer.

        Raises:
            Failed: the child failed or did not answer in time; it cannot be used any more.
        """
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._line(limit_s))
        if "error" in answer:
            raise Failed(answer["error"], self._printed())
        return answer

    def _line(self, limit_s: float) -> bytes:
        assert self._process.stdout is not None
        pipe, end = self._process.stdout.fileno(), time.monotonic() + limit_s
        while b"\n" not in self._received:
            if not select.select([pipe], [], [], max(end - time.monotonic(), 0))[0]:
                raise Failed(f"no answer within {limit_s:.0f} s", self._printed())
            piece = os.read(pipe, 1 << 16)
            if not piece:
                code = self._end()
                raise Failed(f"its process ended with exit code {code}", self._printed())
            self._received += piece
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _printed(self) -> str:
        self._stderr.seek(0)
        return "\n".join(self._stderr.read().splitlines()[-25:])

    def alone(self, limit_s: float = TURN_LIMIT_S, **message: Any) -> dict[str, Any]:
        """Asks like `ask`, then stops the process and its children (SIGSTOP) until the next call.

        For libraries whose processes spin while they wait, and would slow the others' turns.
        """
        self._signal(signal.SIGCONT)
        answer = self.ask(limit_s, **message)
        self._signal(signal.SIGSTOP)
        return answer

    def _signal(self, number: int) -> None:
        if self._process.returncode is None:  # else its number may be another program's
            with contextlib.suppress(ProcessLookupError, PermissionError):  # see kill_group
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Ends the process and its children; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._signal(signal.SIGCONT)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._end()
        self._stderr.close()

    def _end(self) -> int:
        """Ends the group, and before it the guard, which would kill a group of the same number later."""
        self._guard.kill()
        self._guard.communicate()
        return end_group(self._process, PATIENCE_S)


def all_at_once(work: Sequence[Callable[[], T]]) -> list[T | Failed]:
    """Calls all functions in parallel threads; returns in order their results, or the Failed that was raised."""

    def one(call: Callable[[], T]) -> T | Failed:
        try:
            return call()
        except Failed as failed:
            return failed

    with ThreadPoolExecutor(max(len(work), 1)) as pool:
        return list(pool.map(one, work))
