"""The newest figures of a metrics.jsonl that another process is writing, and the curve of its return.

Place in the flow: watch.py asks once a second. It never holds the file, and reads of a long one only a part.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from metta_fast.metrics.dashboard import CURVE_POINTS, Curve, keep

TAIL = 8 << 20
"""Bytes at the end that are read row by row; of what lies before, some hundred rows for the curve."""


class MetricsTail:
    """`update()` now and then; then look at `seen` and `curve`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._restart()

    def _restart(self) -> None:
        self.seen: dict[str, float] = {}
        """Name → its newest finite value."""
        self.curve = Curve()
        """Of env/return, over the file's whole length."""
        self._offset = 0
        self._next_point = self._point_gap = 0
        """Where the next point of the curve is taken, and the bytes from one to the next."""

    def update(self) -> None:
        """Read what was written since; a file that was cut (a run resumed) is read anew.

        Raises:
            OSError: it is there and cannot be read.
        """
        try:
            file = open(self.path, "rb")  # noqa: SIM115 - closed by the next line
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
                    break  # half written: next time
                self._take(line, self._offset)
                self._offset += len(line)

    def _skim(self, file: IO[bytes], end: int) -> None:
        """Take evenly spaced rows up to `end`, and go on with the first row after it."""
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
            return  # no row: the file was cut and written again between two looks
        self.seen.update(row)
        if "env/return" in row and place >= self._next_point:
            self.curve.add(row["env/return"])
            self._next_point = place + self._point_gap
