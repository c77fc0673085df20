"""Reads the newest metrics of a metrics.jsonl that another process is writing, and the curve of its return.

Place in the flow: state.py updates it once a second. The file is not kept open, and only part of a long one is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from metta_fast.metrics.progress_text import keep
from metta_fast.metrics.run_panel import CURVE_POINTS, Curve
from metta_fast.storage.durable import open_regular

TAIL = 8 << 20
"""Bytes at the end of the file that are read completely; from earlier parts, some hundred rows are sampled."""


class MetricsTail:
    """Follows one metrics.jsonl: call `update()` regularly, then read `seen` and `curve`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._restart()

    def _restart(self) -> None:
        self.seen: dict[str, float] = {}
        """Newest finite value of each name."""
        self.curve = Curve()
        """Curve of env/return over the whole file."""
        self._offset = 0
        self._next_point = self._point_gap = 0
        """File offset of the curve's next point, and the bytes between two points."""

    def update(self) -> None:
        """Reads the rows written since the last call; a file truncated by a resume is read again from the start.

        Raises:
            OSError: the file exists and cannot be read.
        """
        try:
            file = open_regular(self.path)
        except FileNotFoundError:
            self._restart()
            return
        with file:
            size = file.seek(0, 2)
            if size < self._offset:
                self._restart()
            if self._offset == 0 and size > TAIL:
                self._skim(file, size - TAIL)
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # incomplete: read it at the next call
                self._take(line, self._offset)
                self._offset += len(line)

    def _skim(self, file: IO[bytes], end: int) -> None:
        """Samples evenly spaced rows up to `end`, and moves to the first row after it."""
        self._point_gap = max(end // CURVE_POINTS, 1)
        for place in range(0, end, self._point_gap):
            file.seek(place)
            file.readline()
            self._take(file.readline(), place)
        file.seek(end)
        file.readline()
        self._offset = file.tell()

    def _take(self, line: bytes, place: int) -> None:
        try:
            row = keep(json.loads(line))
        except (ValueError, AttributeError, TypeError):
            return  # not a row: the file was truncated and rewritten between two calls
        self.seen.update(row)
        if "env/return" in row and place >= self._next_point:
            self.curve.add(row["env/return"])
            self._next_point = place + self._point_gap
