"""Where metrics go: metrics.jsonl (the record) and TensorBoard events, behind one small protocol.

Weights & Biases is a third, in wandb_log.py.

Rows are flat: {"train/steps": 16384, "train/epoch": 1, "env/return": 0.5, …}. A figure that is NaN or
infinite is written as null, so that every line is JSON.

Place in the flow: trainer.py writes one row per logged epoch.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from metta_fast.errors import UserError

Row = dict[str, float]
"""Figures by name."""


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
        if path.exists():
            cut_rows(path, -1 if resume_step is None else resume_step)
        self._file: IO[str] | None = open(path, "a", buffering=1)  # noqa: SIM115 - held until close

    def write(self, step: int, row: Row) -> None:
        assert self._file is not None, "written after close"
        clean = {name: value if math.isfinite(value) else None for name, value in row.items()}
        try:
            self._file.write(json.dumps({"train/steps": step, **clean}) + "\n")
        except OSError as error:
            raise UserError(
                f"cannot write {self.path}: {error.strerror}. Make it writable or free some space, or "
                f"copy the run elsewhere; the checkpoints are whole: go on with resume={self.path.parent}"
            ) from error

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


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


class TensorBoardLogger:
    """TensorBoard events; the rows of a second (`MIN_GAP_S`) are merged into one.

    On resume a session start at `resume_step` makes TensorBoard drop the events after it.
    """

    MIN_GAP_S = 1.0

    def __init__(self, folder: Path, resume_step: int | None = None) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        self._writer: EventFileWriter | None = EventFileWriter(str(folder))
        self._thinned = Thinned(self.MIN_GAP_S)
        if resume_step is not None:
            self._writer.add_event(
                Event(
                    wall_time=time.time(),
                    step=resume_step + 1,
                    session_log=SessionLog(status=SessionLog.START),
                )
            )

    def write(self, step: int, row: Row) -> None:
        self._emit(self._thinned.add(step, row))

    def close(self) -> None:
        if self._writer is not None:
            self._emit(self._thinned.rest())
            writer, self._writer = self._writer, None
            writer.close()

    def _emit(self, due: tuple[int, Row] | None) -> None:
        assert self._writer is not None, "written after close"
        if due is None:
            return
        step, row = due
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in row.items()]
        self._writer.add_event(
            self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))
        )


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


def cut_rows(path: Path, step: int) -> None:
    """Shorten the file to its rows up to `step`; what follows them, whole rows or not, is dropped."""
    end = 0
    with open(path, "rb") as file:
        for line in file:
            try:
                if not line.endswith(b"\n") or json.loads(line)["train/steps"] > step:
                    break
            except (ValueError, KeyError, TypeError):
                break
            end += len(line)
    if end < path.stat().st_size:
        os.truncate(path, end)
