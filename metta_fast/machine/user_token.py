"""A secret of this user on this machine, with which the runs that name code are marked.

    ~/.config/metta_fast/token         made at the first such run, readable by this user only
    METTA_FAST_TOKEN=…                 a secret of machines that share runs, beside it

A run holds no secret, only a message's HMAC, which nobody can make for another message. Used by config/trust.py.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

VARIABLE = "METTA_FAST_TOKEN"
BYTES = 32


def token_file() -> Path | None:
    """Returns the path of this user's token; None: there is no home folder."""
    folder = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        root = Path(folder) if os.path.isabs(folder) else Path.home() / ".config"
    except RuntimeError:
        return None
    return root / "metta_fast" / "token"


def user_token(*, make: bool = False) -> bytes | None:
    """Returns this user's token.

    Args:
        make: create it if there is none.

    Returns:
        None: there is none, it cannot be made, or others could read or replace it.
    """
    path = token_file()
    if path is None:
        return None
    try:
        found = _read(path)
        if found is None and make:
            _make(path)
            found = _read(path)
    except OSError:
        return None
    return found


def shared_token() -> bytes | None:
    """Returns the token in METTA_FAST_TOKEN, or None."""
    return os.environ.get(VARIABLE, "").encode(errors="surrogateescape") or None


def signature(token: bytes, message: bytes) -> str:
    """Returns the HMAC-SHA256 of a message, in hexadecimal."""
    return hmac.new(token, message, hashlib.sha256).hexdigest()


def is_signed(token: bytes | None, message: bytes, given: object) -> bool:
    """Whether `given` is the message's signature by this token."""
    if token is None or not isinstance(given, str):
        return False
    return hmac.compare_digest(signature(token, message).encode(), given.encode(errors="replace"))


def _read(path: Path) -> bytes | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
            return None
        text = os.read(file, 4096).strip()
    finally:
        os.close(file)
    return text if len(text) >= BYTES else None


def _make(path: Path) -> None:
    """Creates the file with its content at once, so that of two processes both read one token."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".token-{os.getpid()}-{secrets.token_hex(4)}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(file, "wb") as writing:
            writing.write(secrets.token_hex(BYTES).encode() + b"\n")
        try:
            os.link(beside, path)
        except FileExistsError:
            pass  # another process was quicker
        except OSError:  # a file system without links
            if not path.exists():
                beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
