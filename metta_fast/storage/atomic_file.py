"""Writes files atomically: after a full disk or a kill, and for every reader, a file is either old or complete.

with whole(path) as beside:
    beside.write_text(…)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a temporary path in the same folder with the same suffix; on success it replaces `path`."""
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
