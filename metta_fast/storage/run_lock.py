"""Locks a run's folder, so that only one process writes into it.

    lock = RunLock(folder / "lock", "grid-1")
    lock.take()           # RunLocked, if another process or another run of this process holds it
    lock.release()

The file is locked with flock: the system releases it however the process ends. It also keeps out a second run in the
same process. fcntl's record locks would not, and are lost as soon as anyone in the process closes the file, for
example a callback that copies the folder. On NFS, Linux turns flock into a lock at the server, so that it holds between
hosts.

A forked child shares its parent's lock and would hold it after the parent was killed. It closes its descriptor right
after the fork. Started programs never have it: it is not inheritable. The file's text names the owner, for messages and
for `metta-fast monitor`.

Place in the flow: run_folder.py's RunDir has one.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import socket
import time
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from metta_fast.contracts.errors import UserError
from metta_fast.machine.process_clock import process_start

LOG = logging.getLogger("metta_fast.storage.run_lock")
HELD = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)
"""Another holds the lock; EACCES where flock is made of record locks."""
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""The file system has no locks: some network and bucket mounts."""
FORKED_S = 2.0
"""Seconds that a child, forked just before its parent was killed, has for its first steps, which close the lock."""
OWNER = re.compile(r"process (\d+) on (.*)\nstarted (.*)\n")


class RunLocked(UserError):
    """Another process is training this run."""


def not_writable(folder: Path, error: OSError) -> UserError:
    """Returns the error for a run's folder that cannot be written."""
    return UserError(
        f"cannot write into the run's folder {folder}: {error.strerror}; choose another with run.dir=…"
    )


class RunLock:
    """Holds the lock file of one run between `take` and `release`."""

    def __init__(self, path: Path, run: str) -> None:
        self._file: int | None = None
        """The descriptor that has the lock. It is released when this object is collected."""
        self._path, self._run = path, run

    @property
    def held(self) -> bool:
        """Whether `take` has locked the file and `release` was not called since."""
        return self._file is not None

    def take(self) -> None:
        """Locks the file and writes this process into it.

        Raises:
            RunLocked: another process holds the lock, or this one for another run; the message names it.
            UserError: the folder cannot be written or locked.
        """
        assert self._file is None
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise not_writable(self._path.parent, error) from error
        _TAKEN.add(self)
        try:
            self._lock(self._file)
            self._sign(self._file)
        except BaseException:
            self._close()
            raise

    def release(self) -> None:
        """Releases the lock; may be called twice."""
        if self._file is not None:
            with suppress(OSError):  # a full disk: the name stays, but its process no longer has the lock
                os.ftruncate(self._file, 0)
            self._close()

    def forget(self) -> None:
        """Closes the descriptor of a forked child; the parent keeps the lock."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                os.close(file)

    def __del__(self) -> None:
        if self._file is not None:
            self.release()

    def _close(self) -> None:
        _TAKEN.discard(self)
        self.forget()

    def _lock(self, file: int) -> None:
        deadline = time.monotonic() + FORKED_S
        error = _flock(file)
        while error is not None and error.errno in HELD and time.monotonic() < deadline:
            if not _Owner(file).left_here():
                break
            time.sleep(0.01)
            error = _flock(file)
        if error is None:
            return
        if error.errno in HELD:
            raise self._locked(file) from error
        if error.errno not in NO_LOCKS:
            raise UserError(
                f"cannot lock the run's folder {self._path.parent}: {error.strerror}; choose another with run.dir=…"
            ) from error
        if _Owner(file).runs_here():
            raise self._locked(file) from error
        LOG.warning(
            "warning: %s has no file locks (%s): nothing keeps a process on another machine from training this "
            "run at the same time",
            self._path.parent,
            error.strerror,
        )

    def _locked(self, file: int) -> RunLocked:
        owner = _Owner(file)
        if owner.left_here():
            return RunLocked(
                f"run {self._run} is locked in the name of {owner.name}, which no longer runs here: a process that "
                f"it started still has the lock (`fuser {self._path}` shows its number); end it, or start another "
                "run with run.name=…"
            )
        return RunLocked(
            f"run {self._run} is being trained by {owner.name}: stop it first, or start another run with run.name=…"
        )

    def _sign(self, file: int) -> None:
        text = f"process {os.getpid()} on {socket.gethostname()}\nstarted {process_start('self')}\n"
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, text.encode(), 0)
        except OSError as error:
            raise not_writable(self._path.parent, error) from error


def _flock(file: int) -> OSError | None:
    """Tries to lock the file. Returns why it cannot."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error
    return None


class _Owner:
    """The process that a lock file names."""

    def __init__(self, file: int) -> None:
        try:
            text = os.pread(file, 4096, 0).decode(errors="replace")
        except OSError:
            text = ""
        self._found = OWNER.fullmatch(text)
        self.name = text.partition("\n")[0].strip() or "another process"

    def runs_here(self) -> bool:
        """Whether it is a process of this machine. A number that another program uses by now does not count."""
        if self._found is None or self._found[2] != socket.gethostname():
            return False
        start = process_start(self._found[1])
        return start is not None and str(start) == self._found[3]

    def left_here(self) -> bool:
        """Whether it was a process of this machine and is none now."""
        if self._found is None or self._found[2] != socket.gethostname() or process_start("self") is None:
            return False
        return not self.runs_here()


_TAKEN: WeakSet[RunLock] = WeakSet()


def _forget_all() -> None:
    for lock in list(_TAKEN):
        lock.forget()
    _TAKEN.clear()


os.register_at_fork(after_in_child=_forget_all)
