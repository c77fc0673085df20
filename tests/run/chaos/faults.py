"""Builds and drives faults.c: the points at which a process changes a folder's files, and what happens at one.

library = build(folder)                       # then start Python with LD_PRELOAD=library
arm(below, number, "kill", trace)             # in the process that is to fail
points(trace), cut(below, trace)              # afterwards, in another one
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.c_compiler import CC

SOURCE = Path(__file__).with_name("faults.c")
MODES = {"count": 0, "kill": 1, "half": 2, "power": 3, "once": 4, "full": 5}
"""As in faults.c."""
ERRORS = {"once": errno.EIO, "full": errno.ENOSPC}
VARIABLE = "LD_PRELOAD"


@dataclass(frozen=True)
class Point:
    """A call that changes files."""

    number: int
    what: str
    path: str
    to: str | None = None

    def site(self, below: Path) -> str:
        """What it is, whenever it happens: without steps, numbers of processes and times."""
        names = [self.path] if self.to is None else [self.path, self.to]
        return " ".join([self.what, *(re.sub(r"\d+", "N", name.removeprefix(f"{below}/")) for name in names)])


def build(folder: Path) -> Path:
    """Compiles the library into `folder`."""
    library = folder / "faults.so"
    subprocess.run([*CC, "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def arm(below: Path, number: int, mode: str, trace: Path, code: int | None = None) -> None:
    """Has this process fail at point `number` of those below a folder. code: an errno instead of the mode's own."""
    library = ctypes.CDLL(os.environ[VARIABLE])
    file = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    code = ERRORS.get(mode, 0) if code is None else code
    library.chaos_arm(
        os.fsencode(below), ctypes.c_long(number), MODES[mode], ctypes.c_int(code), ctypes.c_int(file)
    )


def points(trace: Path) -> list[Point]:
    """The points of a process that was armed."""
    found = []
    for line in trace.read_text().splitlines():
        number, what, rest = line.split(" ", 2)
        if number != "lost":
            path, _, to = rest.partition(" -> ")
            found.append(Point(int(number), what, path, to or None))
    return found


def cut(below: Path, trace: Path) -> int:
    """Takes away what a failure of the power does: bytes that were not flushed. Returns how many files lost some."""
    flushed = {}
    for line in trace.read_text().splitlines():
        if line.startswith("lost "):
            _, number, size = line.split()
            flushed[int(number)] = int(size)
    lost = 0
    for path in below.rglob("*"):
        found = path.lstat()
        if (
            path.is_file()
            and not path.is_symlink()
            and flushed.get(found.st_ino, found.st_size) < found.st_size
        ):
            os.truncate(path, flushed[found.st_ino])
            lost += 1
    return lost
