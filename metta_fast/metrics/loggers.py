"""Writes metrics to metrics.jsonl (the authoritative record) and to TensorBoard, behind one small protocol.

The logger for Weights & Biases is in wandb_logger.py.

Rows are flat: {"train/steps": 16384, "train/epoch": 1, "env/return": 0.5, …}. NaN and infinity are written as null,
so that every line is valid JSON.

Place in the flow: run/run_writer.py writes one row per logged epoch.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from metta_fast.contracts.errors import UserError
from metta_fast.storage.atomic_file import whole

Row = dict[str, float]
"""Values by name."""
_EVENTS = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class Logger(Protocol):
    """Writes rows that come in ascending order of steps."""

    def write(self, step: int, row: Row) -> None: ...

    def close(self) -> None:
        """Writes everything still waiting; may be called twice."""


class JsonlLogger:
    """Writes one JSON object per line without buffering, so that a killed process loses at most part of one line.

    When a run is resumed, rows after `resume_step` are first moved to `metrics-aside-….jsonl`, and an incomplete last
    line is removed.

    Attributes:
        damaged_after: step of the last row before a damaged row, if a resumed run's file is damaged before
            `resume_step`.
        aside: the file that has the moved rows, or None.
    """

    def __init__(self, path: Path, resume_step: int | None = None) -> None:
        self.path = path
        self.damaged_after: int | None = None
        self.aside: Path | None = None
        if path.exists():
            asked = -1 if resume_step is None else resume_step
            last, broken, self.aside = cut_rows(path, asked)
            self.damaged_after = last if broken and last < asked else None
        self._rest = b""
        """Bytes that `write` could not write."""
        self._file: BinaryIO | None = open(  # noqa: SIM115 - held until close
            path, "ab", buffering=0, opener=_no_link
        )

    def write(self, step: int, row: Row) -> None:
        assert self._file is not None, "written after close"
        clean = {name: value if math.isfinite(value) else None for name, value in row.items()}
        self._rest += json.dumps({"train/steps": step, **clean}).encode() + b"\n"
        with self._as_user_error():
            self._write_rest(self._file)

    def _write_rest(self, file: BinaryIO) -> None:
        while self._rest:  # a nearly full disk accepts only part of a line
            self._rest = self._rest[file.write(self._rest) :]

    def sync(self) -> None:
        """Flushes the file to disk, so that after a crash the rows are as complete as the checkpoint.

        What a failed `write` has left is written first: the checkpoint is of a step that has a row.
        """
        if self._file is not None:
            with self._as_user_error():
                self._write_rest(self._file)
                os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with self._as_user_error():
                file.close()

    @contextmanager
    def _as_user_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot write {self.path}: {error.strerror}. Make it writable, free disk space, or copy the run "
                f"elsewhere; the checkpoints are complete: continue with resume={self.path.parent}"
            ) from error


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


class Thinned:
    """Merges rows to at most one per `gap_s` seconds, with the newest value of each name."""

    def __init__(self, gap_s: float) -> None:
        self._gap_s, self._last = gap_s, -math.inf
        self._step, self._waiting = 0, Row()

    def add(self, step: int, row: Row, now: float | None = None) -> tuple[int, Row] | None:
        """Adds a row and returns the merged row if `gap_s` seconds have passed.

        Args:
            now: seconds on any clock; None: time.monotonic().
        """
        now = time.monotonic() if now is None else now
        self._step = step
        self._waiting.update(row)
        if now - self._last < self._gap_s:
            return None
        self._last = now
        return self.rest()

    def rest(self) -> tuple[int, Row] | None:
        """Returns the merged row still waiting, or None."""
        if not self._waiting:
            return None
        row, self._waiting = self._waiting, Row()
        return self._step, row


class Later:
    """Creates a logger at its first row, so that the first update does not wait for TensorBoard's import.

    If it cannot be created, a warning is logged and the run continues without it.
    """

    def __init__(self, make: Callable[[], Logger]) -> None:
        self._make: Callable[[], Logger] | None = make
        self._logger: Logger | None = None

    def write(self, step: int, row: Row) -> None:
        if self._make is not None:
            make, self._make = self._make, None
            try:
                self._logger = make()
            except OSError as error:
                logging.getLogger(__name__).warning("no TensorBoard events: %s", error.strerror)
        if self._logger is not None:
            self._logger.write(step, row)

    def close(self) -> None:
        if self._logger is not None:
            self._logger.close()


class TensorBoardLogger:
    """Writes TensorBoard events without buffering, at most one row per `MIN_GAP_S` seconds (rows are merged).

    On resume, a session start at `resume_step` makes TensorBoard drop later events. TensorBoard reads a folder's files
    in the order of the times in their names, so the new name is later than the existing ones even if the clock was set
    back. If the file cannot be written, one warning is logged and the run continues: metrics.jsonl has every row.
    """

    MIN_GAP_S = 1.0

    def __init__(self, folder: Path, resume_step: int | None = None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = Event, Summary
        folder.mkdir(exist_ok=True)
        there = [int(found[1]) for path in folder.iterdir() if (found := _EVENTS.match(path.name))]
        stamp = max([int(time.time()), *(before + 1 for before in there)])
        path = folder / f"events.out.tfevents.{stamp:010d}.{socket.gethostname()}.{os.getpid()}"
        self._writer: RecordWriter | None = RecordWriter(open(path, "xb", buffering=0))  # noqa: SIM115
        self._thinned = Thinned(self.MIN_GAP_S)
        self._add(file_version="brain.Event:2")
        if resume_step is not None:
            self._add(step=resume_step + 1, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, row: Row) -> None:
        self._emit(self._thinned.add(step, row))

    def close(self) -> None:
        if self._writer is not None:
            self._emit(self._thinned.rest())
        self._end()

    def _emit(self, due: tuple[int, Row] | None) -> None:
        if due is None:
            return
        step, row = due
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._add(step=step, summary=self._summary(value=values))

    def _add(self, **event: Any) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write(self._event(wall_time=time.time(), **event).SerializeToString())
        except OSError as error:
            logging.getLogger(__name__).warning("no more TensorBoard events: %s", error.strerror)
            self._end()

    def _end(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):  # nothing is buffered
                writer.close()


def read_rows(path: Path) -> Iterator[Row]:
    """Yields the rows of a metrics.jsonl; stops at an incomplete line, or one that is no row."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                return
            if not isinstance(row, dict):
                return
            yield row


def cut_rows(path: Path, step: int) -> tuple[int, bool, Path | None]:
    """Truncates the file after its last complete row up to `step`; later rows are moved to a file beside it.

    Returns:
        The step of the last remaining row (0: none), whether a damaged row followed it, and the file with the later
        rows (None: there were none, or only part of one).
    """
    end = last = 0
    broken = False
    with open(path, "rb") as file:
        for line in file:
            try:
                here = json.loads(line)["train/steps"]
                if not line.endswith(b"\n") or here > step:
                    broken = here <= step
                    break
            except (ValueError, KeyError, TypeError, RecursionError):
                broken = True
                break
            end, last = end + len(line), here
        aside = _copy_rows(file, end, path) if end < path.stat().st_size else None
    if end < path.stat().st_size:
        os.truncate(path, end)
    return last, broken, aside


def _copy_rows(file: BinaryIO, start: int, path: Path) -> Path | None:
    """Copies the bytes from `start` to a new file beside `path`; None if they hold no whole line."""
    file.seek(start)
    if not file.readline().endswith(b"\n"):
        return None
    file.seek(start)
    aside = path.with_name(f"{path.stem}-aside-{time.time_ns()}{path.suffix}")
    with whole(aside) as beside, open(beside, "wb") as copy:
        shutil.copyfileobj(file, copy)
    return aside
