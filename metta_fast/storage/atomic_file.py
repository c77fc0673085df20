"""Writes files atomically: after a full disk, a kill or a power failure, and for every reader, a file is either old or
complete.

with whole(path) as beside:
    beside.write_text(…)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metta_fast.storage.durable import sync_folder


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a temporary path in the same folder with the same suffix; on success it replaces `path`."""
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    part.unlink(missing_ok=True)  # what is left of a killed process, or a link that leads elsewhere
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
        sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)
