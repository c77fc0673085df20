"""A file that is whole or as it was before, whatever happens while it is written: a full disk, a kill, a reader.

with whole(path) as beside:
    beside.write_text(…)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name beside `path`, of the same ending, to write to; it takes its place at the end."""
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
