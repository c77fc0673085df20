"""Defines the errors whose messages a user reads, and how a program or a notebook shows a UserError."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from types import TracebackType

from metta_fast.contracts.printable import printable

LONGEST_WORD = 400
"""Letters of a word that a message shows in full; paths are rarely longer."""


class UserError(Exception):
    """A mistake that the user can correct: the message names what was given, what was expected, and the fix.

    The command line prints the message without a traceback and exits with code 2. Where a program does not catch it,
    Python shows the program's own frames and the message, and no frames of metta_fast; so does IPython. The whole
    traceback stays in `__traceback__`.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if sys.excepthook is sys.__excepthook__:  # a hook of the program's own is left alone
            sys.excepthook = _show

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython and Jupyter show."""
        text = _text(self, _callers(self.__traceback__, leave_out=("IPython", "ipykernel")))
        return text.splitlines()


class Unreachable(RuntimeError):
    """Remote storage does not answer, and without it there is nothing to do. The command ends with 1, not 2, so that a
    scheduler tries again."""


UserError.__module__ = "metta_fast"  # its public name, which tracebacks show


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Shows an exception that nobody caught: sys.excepthook, from the first UserError on."""
    if isinstance(error, UserError):
        print(_text(error, _callers(trace)), end="", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def _text(error: BaseException, trace: TracebackType | None) -> str:
    return "".join(traceback.format_exception(type(error), error, trace, chain=False))


def _callers(trace: TracebackType | None, leave_out: tuple[str, ...] = ()) -> TracebackType | None:
    """Returns a copy of a traceback that ends where metta_fast was called.

    Args:
        leave_out: packages whose frames are left out before that as well.
    """
    if trace is None:
        return None
    package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    if package == "metta_fast":
        return None
    rest = _callers(trace.tb_next, leave_out)
    return (
        rest if package in leave_out else TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    )


def no_threads(count: int, number: int) -> UserError:
    """Returns the error for `count` threads that cannot be started; number: the system's error number."""
    return UserError(
        f"cannot start {count} threads: {os.strerror(number)}. Either the limit of this user or container is reached "
        "(ulimit -u, pids.max), or there is no memory for their stacks (ulimit -s): end other programs, raise the "
        "limit, or use fewer threads (trainer.torch_threads, vector.num_threads, vector.num_workers)"
    )


CURES = {
    errno.EMFILE: "raise the limit of open files (ulimit -n 4096)",
    errno.ENFILE: "this machine has no open files left: end other programs",
    errno.ENOSPC: "free disk space",
    errno.EDQUOT: "free disk space, your quota is used up",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EACCES: "ask for access, or choose another folder",
    errno.EPERM: "ask for access, or choose another folder",
    errno.ELOOP: "remove the circle of links",
    errno.ENOMEM: "end other programs",
    errno.EAGAIN: "raise the limit of processes and threads (ulimit -u)",
}
"""The system's refusals that the user can cure."""


def system_refusal(error: OSError | ImportError) -> str | None:
    """Returns the message for a refusal of the system that the user can cure; None: it is a fault of the program."""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, ImportError) and os.strerror(errno.EMFILE) in str(error):
        number = errno.EMFILE  # the loader of shared libraries says it in words
    if number not in CURES:
        return None
    name = getattr(error, "filename", None)
    where = f"{os.fsdecode(name) if isinstance(name, (str, bytes)) else name}: " if name is not None else ""
    return f"{where}{os.strerror(number)}; {CURES[number]}"


def shown_text(text: str) -> str:
    """Returns a text as the terminal shows it: no control characters, and the middle of endless words left out."""
    return re.sub(
        rf"\S{{{LONGEST_WORD + 1},}}",
        lambda word: f"{word[0][:100]}…({len(word[0])} letters)…{word[0][-20:]}",
        printable(text),
    )


class NonFiniteError(RuntimeError):
    """NaN or infinity in an observation, reward, action or loss; the message names the field and the environment."""
