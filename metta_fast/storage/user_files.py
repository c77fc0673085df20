"""Opens files that a user names: to read (a map, a model, results) or to write (a page, a chart, a policy).

    text = read_text(Path("my.txt"), "map='my.txt'")      # UserError: no such file, a device, not UTF-8
    check_output(Path("x.html"), "--html x.html")         # UserError: early, before an episode is played

A pipe or device is refused: reading one may wait for ever, and writing one would replace it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from metta_fast.contracts.errors import UserError

MOST_BYTES = 64 << 20
"""Size of a text that is read."""
BESIDE = 24
"""Letters that the name of a temporary file beside it is longer."""


def user_path(text: str) -> Path:
    """Returns the path that a user types; `~` is a home folder. Raises UserError: that user is unknown."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UserError(f"{text}: {error}; give the folder's full path") from error


def read_text(path: Path, what: str, most_bytes: int = MOST_BYTES) -> str:
    """Returns the text of a regular file in UTF-8, without a byte order mark.

    Args:
        what: what names the file, for messages: "--from x.json".

    Raises:
        UserError: it cannot be read, is no regular file, is too large, or is not UTF-8.
    """
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise UserError(f"{what} is a folder; give a file")
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"{what} is a pipe or device; give a regular file")
        if found.st_size > most_bytes:
            raise UserError(
                f"{what} has {found.st_size} bytes; expected a text of at most {most_bytes} bytes"
            )
        return path.read_bytes().decode().removeprefix("\ufeff")
    except OSError as error:
        raise UserError(f"{what} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{what} is not a text in UTF-8: byte 0x{error.object[error.start]:02x} in line {line}; save it as UTF-8"
        ) from error
    except ValueError as error:  # a zero byte in the name
        raise UserError(f"{what} cannot be read: {error}") from error


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder that this user can see; False also for names that no file can have."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def is_file(path: Path) -> bool:
    """Whether `path` is a regular file that this user can see; False also for names that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def exists(path: Path) -> bool:
    """Whether there is something at `path` that this user can see."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def check_output(path: Path, what: str) -> None:
    """Checks early that a file can be written.

    Args:
        what: what names the file, for messages: "--html x.html".

    Raises:
        UserError: it is a folder, no regular file, a link, in no folder, not writable, or its name is too long.
    """
    try:
        if path.is_symlink():
            raise UserError(f"{what} is a link, which would be replaced; give the file itself")
        found = _mode(path)
        if found is not None and stat.S_ISDIR(found):
            raise UserError(f"{what} is a folder; give a file's name")
        if found is not None and not stat.S_ISREG(found):
            raise UserError(f"{what} is a pipe or device, which would be replaced; give a regular file")
        above = _mode(path.absolute().parent)
        if above is None or not stat.S_ISDIR(above):
            raise UserError(f"{what}: there is no folder {path.parent}; create it first")
        if len(os.fsencode(path.name)) + BESIDE > os.pathconf(path.absolute().parent, "PC_NAME_MAX"):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{what} cannot be written: {why}; give another file") from error
    if not os.access(path if found is not None else path.absolute().parent, os.W_OK):
        raise UserError(f"{what} cannot be written: no permission; give another file")


def _mode(path: Path) -> int | None:
    """Returns a file's kind and permissions; None: there is none."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
