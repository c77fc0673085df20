"""Keeps remote files in a folder: a network drive, a mounted bucket, another disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from metta_fast.storage.atomic_file import whole
from metta_fast.storage.durable import make_folders, open_regular
from metta_fast.storage.remote.files import RemoteError

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_MISSING = (errno.ENOENT, errno.ENOTDIR)


@contextmanager
def _told() -> Iterator[None]:
    """Turns an error of the system into a RemoteError."""
    try:
        yield
    except OSError as error:
        text = f"{error.strerror}: {error.filename}"
        if error.errno in _DENIED:
            raise RemoteError("denied", text) from error
        raise RemoteError("missing" if error.errno in _MISSING else "failed", text) from error


class FolderFiles:
    """Files in a folder, each written beside and renamed into place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, name: str, data: bytes) -> None:
        with _told(), self._whole(name) as beside:
            beside.write_bytes(data)

    def send(self, path: Path, name: str) -> None:
        with _told(), self._whole(name) as beside:
            shutil.copyfile(path, beside, follow_symlinks=False)

    @contextmanager
    def _whole(self, name: str) -> Iterator[Path]:
        path = self._folder / name
        make_folders(path.parent)
        with whole(path) as beside:
            yield beside

    def read(self, name: str) -> bytes:
        with _told(), open_regular(self._folder / name) as file:
            return file.read()

    def sizes(self, folder: str) -> Mapping[str, int]:
        top, found = self._folder / folder, dict[str, int]()

        def stop(error: OSError) -> None:
            if error.errno not in _MISSING:
                raise error

        with _told():
            for place, _, names in os.walk(top, onerror=stop):
                for name in names:
                    if name.startswith(".") and ".part" in name:
                        continue  # a write that was interrupted
                    path = Path(place, name)
                    try:
                        found[path.relative_to(top).as_posix()] = path.lstat().st_size
                    except FileNotFoundError:  # removed meanwhile
                        continue
        return found

    def folders(self) -> list[str]:
        with _told():
            try:
                return sorted(entry.name for entry in self._folder.iterdir() if entry.is_dir())
            except FileNotFoundError:
                return []

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with _told():
                (self._folder / name).unlink(missing_ok=True)
