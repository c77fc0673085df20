"""Uploads a run's other files as they change: metrics, configuration, log, replays, exports; no checkpoints.

Place in the flow: uploads.py calls `sync` from its thread.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from metta_fast.storage.remote.fetch import is_safe
from metta_fast.storage.remote.files import Files, put, send

FIRST = ("id", "config.yaml", "metrics.jsonl", "summary.json", "train.log")
"""Uploaded before others."""
WHOLE_BYTES = 8 << 20
"""Files up to this size are read before they are uploaded, so that what is written meanwhile changes nothing."""
PACE = 20.0
"""A file that took long is uploaded again only after this many times its duration."""


class RunFiles:
    """Remembers which version of each file is in remote storage."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files, self._folder = files, folder
        self._sent: dict[str, tuple[int, int]] = {}
        """Size and time of change of each file that was uploaded."""
        self._next: dict[str, float] = {}

    def changed(self, *, all_now: bool = False) -> list[str]:
        """Returns the names of the files to upload. all_now: those that have to wait for their pace as well."""
        found, now = self._found(), time.monotonic()
        names = [name for name, version in found.items() if self._sent.get(name) != version]
        if not all_now:
            names = [name for name in names if self._next.get(name, 0.0) <= now]
        rank = {name: number for number, name in enumerate(FIRST)}
        return sorted(names, key=lambda name: (rank.get(name, len(rank)), found[name][0], name))

    def sync(self, between: Callable[[], None], *, all_now: bool = False) -> None:
        """Uploads what changed, and removes what was removed since it was uploaded.

        Args:
            between: called before each file; it may raise to give up.

        Raises:
            RemoteError: remote storage failed.
        """
        for name in self.changed(all_now=all_now):
            between()
            self._send(name)
        gone = [name for name in self._sent if not os.path.lexists(self._folder / name)]
        if gone:
            between()
            self._files.remove([f"files/{name}" for name in gone])
            for name in gone:
                del self._sent[name]

    def _send(self, name: str) -> None:
        path, began = self._folder / name, time.monotonic()
        try:
            version = _version(path)
            if version[0] <= WHOLE_BYTES:
                with open(path, "rb") as file:
                    put(self._files, f"files/{name}", file.read(version[0]))
            else:
                send(self._files, path, f"files/{name}")
        except FileNotFoundError:  # removed meanwhile
            return
        self._sent[name] = version
        self._next[name] = time.monotonic() + PACE * (time.monotonic() - began)

    def _found(self) -> dict[str, tuple[int, int]]:
        """Returns the version of each file of the run that may be uploaded."""
        found = dict[str, tuple[int, int]]()
        for place, folders, names in os.walk(self._folder):
            top = Path(place) == self._folder
            folders[:] = [name for name in folders if not (top and name == "checkpoints") and name[0] != "."]
            for name in names:
                path = Path(place, name)
                relative = path.relative_to(self._folder).as_posix()
                try:
                    if is_safe(relative) and stat.S_ISREG(path.lstat().st_mode):
                        found[relative] = _version(path)
                except FileNotFoundError:
                    continue
        return found


def _version(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_size, found.st_mtime_ns
