"""Writes files and folders that survive a power failure: a file's bytes are on disk after an fsync of the file, its
name after an fsync of its folder."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Any


def make_folders(path: Path) -> None:
    """Makes a folder with its missing parents, unless it exists."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Flushes a folder's entries to disk; file systems without this operation (bucket mounts), and folders that may be
    written but not read, are accepted."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> BufferedReader:
    """Opens a file for reading if it is a regular one: no link, no device, no pipe (which could wait for ever).

    Raises:
        OSError: it is something else, or cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def unusual(path: Path, *, folder: bool = False) -> str | None:
    """Returns what is at `path` if it is neither missing nor a regular file (or a folder); links are not followed."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    if (stat.S_ISDIR if folder else stat.S_ISREG)(mode):
        return None
    kinds = {stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFREG: "a file"}
    kinds |= {stat.S_IFBLK: "a device", stat.S_IFCHR: "a device", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "no regular file")


class HashedFile:
    """Writes a file once, from its beginning to its end, with its checksum; flushed to disk on exit.

    torch.save writes into it. Its C++ writer replaces an exception of `write` by one of its own, so a failed write
    (a full disk) is raised on exit instead.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - closed on exit
        self._hash, self._bytes = hashlib.sha256(), 0
        self._error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        size = memoryview(data).nbytes
        if self._error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self._error = error
        self._hash.update(data)
        self._bytes += size
        return size

    def flush(self) -> None:
        """Does nothing: the file is flushed on exit."""

    def entry(self) -> dict[str, Any]:
        """Returns the file's entry in a manifest."""
        return {"sha256": self._hash.hexdigest(), "bytes": self._bytes}

    def __enter__(self) -> HashedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._error is None and kind is None:
                self._file.flush()
                os.fsync(self._file.fileno())
        finally:
            self._close()
        if self._error is not None:
            raise self._error

    def _close(self) -> None:
        try:
            self._file.close()
        except OSError as error:  # closing tries a failed write again
            self._error = self._error or error
