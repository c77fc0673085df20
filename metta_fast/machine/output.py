"""Writes to stdout and stderr where a closed pipe or a full disk may be behind them.

    with tolerant_output():            # a training: what cannot be written is dropped
        …
    run_command(function)              # another command: stdout that cannot be written is an error, exit code 2

A training's figures are in the run's folder, so `metta-fast train … | head -1`, `2>/dev/full` or a terminal that was
closed must not end it. The result of an evaluation is nowhere else, so its loss is reported. What cannot be written
to stderr never ends a command.

Streams are replaced for a while, not changed: print, logging, warnings, rich and tqdm look them up at each write. A
stream that a program has closed (`2>&-`) gets /dev/null, so that no file of ours takes its number and its text.

Place in the flow: cli.py and bench/main.py run commands; run/trainer.py and vector/worker.py are tolerant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from metta_fast.contracts.errors import UserError, shown_text
from metta_fast.contracts.interrupt import no_silent_exit

NAMES = ("stdout", "stderr")
FAILURES = (OSError, ValueError)
"""What a write raises: the system's error, or ValueError for a stream that was closed."""


class Output:
    """Writes to a stream. Failures are dropped, or with `strict` kept in `failed` and raised.

    Characters that the stream's encoding lacks are replaced by `?`.
    """

    def __init__(self, stream: Any, *, strict: bool) -> None:
        self.__dict__.update(stream=stream, strict=strict, failed=None)

    def write(self, text: Any) -> int:
        try:
            try:
                return int(self.stream.write(text))
            except UnicodeEncodeError:
                encoding = self.stream.encoding or "ascii"
                self.stream.write(text.encode(encoding, "replace").decode(encoding))
        except FAILURES as error:
            self._fail(error)
        return len(text)

    def writelines(self, lines: Iterable[Any]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except FAILURES as error:
            self._fail(error)

    def isatty(self) -> bool:
        try:
            return bool(self.stream.isatty())
        except FAILURES:
            return False

    @property
    def buffer(self) -> Output:
        return Output(self.stream.buffer, strict=self.strict)

    def _fail(self, error: Exception) -> None:
        if self.strict:
            self.__dict__["failed"] = error
            raise error

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute of the stream; a method of ours that a program replaces (wandb does) is replaced here, as
        the new one calls the old one."""
        if hasattr(type(self), name):
            self.__dict__[name] = value
        else:
            setattr(self.stream, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.stream)


@contextmanager
def tolerant_output() -> Iterator[None]:
    """Drops what cannot be written to stdout and stderr."""
    with _output(strict=()):
        yield


def be_tolerant() -> None:
    """Does the same for good, in a process of ours."""
    _open_standard_files()
    for name in NAMES:
        setattr(sys, name, _output_to(name, strict=False))


def run_command(command: Callable[[], int], *, trains: bool = False) -> int:
    """Runs a command and returns its exit code. A UserError gives one line on stderr and exit code 2.

    Args:
        trains: tolerate that stdout cannot be written. Otherwise that is a mistake of the user as well.
    """
    if isinstance(sys.stdout, Output) and sys.stdout.strict:
        return command()  # within another run_command, which reports
    with no_silent_exit(), _output(strict=() if trains else ("stdout",)) as outputs:
        out = outputs["stdout"]
        try:
            code = command()
            out.flush()
        except UserError as error:
            return _told(str(error))
        except BaseException as error:  # argparse ends by SystemExit; an environment's print may have failed
            with suppress(*FAILURES):
                out.flush()
            if out.failed is None or isinstance(error, (KeyboardInterrupt, GeneratorExit)):
                raise
        else:
            if out.failed is None:
                return code
        why = getattr(out.failed, "strerror", None) or out.failed
        return _told(f"cannot write the output to stdout: {why}; write it to another file or program")


def _told(text: str) -> int:
    print(f"error: {shown_text(text)}", file=sys.stderr, flush=True)
    return 2


@contextmanager
def _output(strict: tuple[str, ...]) -> Iterator[dict[str, Output]]:
    """Replaces both streams; on exit, puts them back and gives up what they still hold and cannot write."""
    _open_standard_files()
    before = {name: getattr(sys, name) for name in NAMES}
    outputs = {name: _output_to(name, strict=name in strict) for name in NAMES}
    for name, output in outputs.items():
        setattr(sys, name, output)
    try:
        yield outputs
    finally:
        for name, output in outputs.items():
            if getattr(sys, name) is output:
                setattr(sys, name, before[name])
            _empty(output.stream)


def _output_to(name: str, *, strict: bool) -> Output:
    stream = getattr(sys, name)
    if stream is None or getattr(stream, "closed", False):
        stream = open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    return Output(stream.stream if isinstance(stream, Output) else stream, strict=strict)


def _empty(stream: Any) -> None:
    """Writes what the stream holds. If that fails for stdout or stderr themselves, they become /dev/null: Python would
    try again at its end, and replace the exit code."""
    try:
        stream.flush()
    except ValueError:
        return
    except OSError:
        if stream not in (sys.__stdout__, sys.__stderr__):
            return
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
            stream.flush()


def _open_standard_files() -> None:
    """Opens /dev/null for each of the numbers 0, 1, 2 that is closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                opened = os.open(os.devnull, os.O_RDWR)
                if opened != number:
                    os.dup2(opened, number)
                    os.close(opened)
                os.set_inheritable(number, True)
