"""Where metrics go: metrics.jsonl (the record) and TensorBoard events, behind one small protocol.

Weights & Biases is a third, in wandb_log.py.

Rows are flat: {"train/steps": 16384, "train/epoch": 1, "env/return": 0.5, …}. A figure that is NaN or
infinite is written as null, so that every line is JSON.

Place in the flow: trainer.py writes one row per logged epoch.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from metta_fast.contracts.errors import UserError

Row = dict[str, float]
"""Figures by name."""
_EVENTS = re.compile(r"events\.out\.tfevents\.(\d+)\.")


class Logger(Protocol):
    """Takes rows in ascending order of steps."""

    def write(self, step: int, row: Row) -> None: ...

    def close(self) -> None:
        """Write out everything; may be called twice."""


class JsonlLogger:
    """One JSON object per line, written out at once, so that a killed process loses at most half a line.

    Rows after `resume_step` and a half-written last line are cut away first: the run goes on from there.
    """

    def __init__(self, path: Path, resume_step: int | None = None) -> None:
        self.path = path
        self.damaged_after: int | None = None
        """Of a resumed run: the step of the last whole row, where a broken one before the checkpoint follows it."""
        if path.exists():
            asked = -1 if resume_step is None else resume_step
            last, broken = cut_rows(path, asked)
            self.damaged_after = last if broken and last < asked else None
        self._file: BinaryIO | None = open(path, "ab", buffering=0)  # noqa: SIM115 - held until close

    def write(self, step: int, row: Row) -> None:
        assert self._file is not None, "written after close"
        clean = {name: value if math.isfinite(value) else None for name, value in row.items()}
        line = memoryview(json.dumps({"train/steps": step, **clean}).encode() + b"\n")
        with self._told():
            while line:  # a disk that is nearly full takes a part
                line = line[self._file.write(line) :]

    def sync(self) -> None:
        """Onto the disk, so that a machine that goes down keeps the rows of what a checkpoint holds."""
        if self._file is not None:
            with self._told():
                os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with self._told():
                file.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"cannot write {self.path}: {error.strerror}. Make it writable or free some space, or "
                f"copy the run elsewhere; the checkpoints are whole: go on with resume={self.path.parent}"
            ) from error


class Thinned:
    """Rows merged to at most one in `gap_s` seconds: the newest value of each figure, none left out."""

    def __init__(self, gap_s: float) -> None:
        self._gap_s, self._last = gap_s, -math.inf
        self._step, self._waiting = 0, Row()

    def add(self, step: int, row: Row, now: float | None = None) -> tuple[int, Row] | None:
        """The merged row, if it is time for one. `now`: seconds on whatever clock; None: the machine's."""
        now = time.monotonic() if now is None else now
        self._step = step
        self._waiting.update(row)
        if now - self._last < self._gap_s:
            return None
        self._last = now
        return self.rest()

    def rest(self) -> tuple[int, Row] | None:
        """What still waits."""
        if not self._waiting:
            return None
        row, self._waiting = self._waiting, Row()
        return self._step, row


class Later:
    """A logger that is made with its first row: the first update does not wait for TensorBoard's import, 0.2 s.

    One that cannot be made is told, and the run goes on without it.
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
    """TensorBoard events; the rows of a second (`MIN_GAP_S`) are merged into one and written out at once.

    On resume a session start at `resume_step` makes TensorBoard drop the events after it. It reads a folder's files
    in the order of the times in their names: a clock that was set back must not bring this one before the others.
    A file that cannot be written is told once; the run goes on without it, as metrics.jsonl has every row.
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
            with suppress(OSError):  # the file has nothing that waits
                writer.close()


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a metrics.jsonl; stops at a half-written last line."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except ValueError:
                return


def cut_rows(path: Path, step: int) -> tuple[int, bool]:
    """Shorten the file to its rows up to `step`; what follows them, whole rows or not, is dropped.

    Returns:
        The step of the last row that is left (0: none is), and whether a broken row followed it.
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
            except (ValueError, KeyError, TypeError):
                broken = True
                break
            end, last = end + len(line), here
    if end < path.stat().st_size:
        os.truncate(path, end)
    return last, broken
