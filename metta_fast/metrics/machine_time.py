"""Counts the machine time that a run uses over all its sessions, and what it gets for it: summary.json.

    spent = MachineTime(folder, place, began, step, before)
    spent.row(step)                perf/gpu_seconds and perf/steps_per_gpu_hour; on the CPU perf/machine_seconds, …
    spent.reach(475.0, step)       the first time that a mean return is reached
    spent.write(step)              summary.json; `state` is what a checkpoint keeps of it
    spent.lines(step)              what the run's end says

A session's time begins with its command and ends with its last row of metrics, or its end: starts, evaluations and
epochs that an interruption lost count as well, because a rented machine is paid for them. GPU-seconds are seconds
times the number of GPUs. Steps are those that the run still has.

Place in the flow: run/trainer.py makes one; run/run_writer.py writes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from metta_fast.metrics.loggers import Row
from metta_fast.metrics.progress_text import short
from metta_fast.storage.altered import WrongState, count, entry, number, text
from metta_fast.storage.atomic_file import whole
from metta_fast.storage.durable import open_regular

NAMES = {"gpu": "gpu", "cpu": "machine"}
"""What a part's time is counted in, in metrics and in words: GPU-seconds, machine-seconds."""
META = "machine_time"
"""Key of a checkpoint's meta.json."""
_TAIL = 1 << 18
"""Bytes at the end of metrics.jsonl that hold its last row."""
_LONG_S = 600.0
"""From here on, times are shown in hours."""


@dataclass(frozen=True)
class Place:
    """Where a session trains."""

    on: str
    """gpu or cpu."""
    machine: str
    """The GPU's name, or the number of cores: "NVIDIA H200", "2 cores"."""
    devices: int = 1
    """GPUs, or machines without one."""

    def __str__(self) -> str:
        return f"{self.devices} × {self.machine}" if self.devices > 1 else self.machine


@dataclass
class Part:
    """Sessions one after another in the same place."""

    on: str
    machine: str
    devices: int
    sessions: int = 0
    seconds: float = 0.0
    """Of each device."""
    steps: int = 0
    """Those that the run still has."""

    @property
    def place(self) -> Place:
        return Place(self.on, self.machine, self.devices)


class MachineTime:
    """Counts one session's time on top of the sessions before.

    Attributes:
        place: where the session trains.
        problem: why summary.json could not be read, or None.
    """

    def __init__(
        self, folder: Path, place: Place, began: float, step: int = 0, before: Any = None, where: str = META
    ) -> None:
        """Reads what the sessions before have used; call it before rows of metrics are cut.

        Args:
            folder: the run's.
            began: time.monotonic() when the session's command began.
            step: where the session starts.
            before: what the checkpoint keeps of the sessions before; None: nothing.
            where: the name of `before` in messages.

        Raises:
            WrongState: `before` is not what `state` returned.
        """
        self._path, self.place, self._began, self._from = folder / "summary.json", place, began, step
        self.problem: str | None = None
        parts, self._reached = _parsed(before, where) if before is not None else ([], [])
        stored = self._stored()
        if _total(stored) >= _total(parts):  # it is written after each checkpoint
            parts = stored
        later = _last_row(folder / "metrics.jsonl") - _total(parts)
        if parts and later > 0:
            parts[-1].seconds += later / parts[-1].devices
        excess = sum(part.steps for part in parts) - step
        for part in reversed(parts):
            lost = min(part.steps, max(excess, 0))
            part.steps, excess = part.steps - lost, excess - lost
        self._parts = parts

    def _stored(self) -> list[Part]:
        try:
            with open_regular(self._path) as file:
                return _parsed(json.loads(file.read()), "")[0]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, RecursionError) as error:
            self.problem = (
                f"{self._path} cannot be read ({getattr(error, 'strerror', None) or error}): time that was used "
                "after the last checkpoint of earlier sessions is not counted"
            )
            return []

    def parts(self, step: int) -> list[Part]:
        """Returns the parts so far, with this session."""
        found = [Part(**asdict(part)) for part in self._parts]
        if not found or found[-1].place != self.place:
            found.append(Part(**asdict(self.place)))
        found[-1].sessions += 1
        found[-1].seconds += time.monotonic() - self._began
        found[-1].steps += step - self._from
        return found

    def reach(self, goal: float, step: int) -> None:
        """Records that the mean return has reached `goal`, unless it had before."""
        if all(done["goal"] != goal for done in self._reached):
            self._reached.append({"goal": goal, "step": step, **self._seconds(self.parts(step))})

    def row(self, step: int) -> Row:
        """Returns the time used and the steps per hour, for metrics."""
        parts, row = self.parts(step), Row()
        for on, name in NAMES.items():
            mine = [part for part in parts if part.on == on]
            if mine:
                seconds = _total(mine)
                row[f"perf/{name}_seconds"] = seconds
                row[f"perf/steps_per_{name}_hour"] = sum(p.steps for p in mine) * 3600 / max(seconds, 1e-9)
        return row

    def state(self, step: int) -> dict[str, Any]:
        """Returns what a checkpoint keeps: JSON values."""
        return {"parts": [asdict(part) for part in self.parts(step)], "reached": self._reached}

    def write(self, step: int) -> None:
        """Writes summary.json.

        Raises:
            OSError: the disk is full or not writable.
        """
        row = {name.removeprefix("perf/"): value for name, value in self.row(step).items()}
        content = {"steps": step, **row, **self.state(step)}
        with whole(self._path) as beside:
            beside.write_text(json.dumps(content, indent=1) + "\n")

    def lines(self, step: int) -> list[str]:
        """Returns the summary in words: a line for each kind of machine, and one for each goal reached."""
        row, parts, found = self.row(step), self.parts(step), list[str]()
        for on, name in NAMES.items():
            mine = [part for part in parts if part.on == on]
            if mine:
                places = ", ".join(dict.fromkeys(str(part.place) for part in mine))
                sessions = sum(part.sessions for part in mine)
                found.append(
                    f"{_time(row[f'perf/{name}_seconds'], name)} on {places}"
                    + (f" in {sessions} sessions" if sessions > 1 else "")
                    + f": {short(row[f'perf/steps_per_{name}_hour'])} steps per {_unit(name)}-hour"
                )
        for done in self._reached:
            times = [_time(done[f"{n}_seconds"], n) for n in NAMES.values() if f"{n}_seconds" in done]
            found.append(
                f"a mean return of {short(done['goal'])} after {' and '.join(times)}, at step {done['step']}"
            )
        return found

    @staticmethod
    def _seconds(parts: list[Part]) -> dict[str, float]:
        return {
            f"{name}_seconds": _total([part for part in parts if part.on == on])
            for on, name in NAMES.items()
            if any(part.on == on for part in parts)
        }


def _total(parts: list[Part]) -> float:
    """Returns seconds times devices."""
    return sum(part.seconds * part.devices for part in parts)


def _parsed(value: Any, where: str) -> tuple[list[Part], list[dict[str, Any]]]:
    """Returns parts and goals reached, of a checkpoint's meta.json or of summary.json."""
    dot = f"{where}." if where else ""
    parts, reached = [], []
    for i, part in enumerate(_list(entry(value, "parts", dot), f"{dot}parts")):
        here = f"{dot}parts[{i}]."
        on = text(entry(part, "on", here), f"{here}on")
        if on not in NAMES:
            raise WrongState(f"{here}on", f"is {on!r}, expected one of {', '.join(NAMES)}")
        devices = count(entry(part, "devices", here), f"{here}devices")
        if devices < 1:
            raise WrongState(f"{here}devices", "is 0, expected at least 1")
        parts.append(
            Part(
                on,
                text(entry(part, "machine", here), f"{here}machine"),
                devices,
                count(entry(part, "sessions", here), f"{here}sessions"),
                number(entry(part, "seconds", here), f"{here}seconds"),
                count(entry(part, "steps", here), f"{here}steps"),
            )
        )
    for i, done in enumerate(_list(entry(value, "reached", dot), f"{dot}reached")):
        here = f"{dot}reached[{i}]."
        kept: dict[str, Any] = {
            "goal": number(entry(done, "goal", here), f"{here}goal", -1e300),
            "step": count(entry(done, "step", here), f"{here}step"),
        }
        for name in NAMES.values():
            if f"{name}_seconds" in done:
                kept[f"{name}_seconds"] = number(done[f"{name}_seconds"], f"{here}{name}_seconds")
        reached.append(kept)
    return parts, reached


def _list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise WrongState(key, "is not a list of keys and values")
    return value


def _last_row(metrics: Path) -> float:
    """Returns the time that the last whole row of metrics.jsonl gives, over all kinds of machines; 0: none."""
    try:
        with open_regular(metrics) as file:
            file.seek(max(file.seek(0, 2) - _TAIL, 0))
            lines = file.read().splitlines(keepends=True)
    except OSError:
        return 0.0
    for line in reversed(lines):
        try:
            if line.endswith(b"\n"):
                row = json.loads(line)
                return sum(number(row.get(f"perf/{name}_seconds", 0.0), name) for name in NAMES.values())
        except (ValueError, AttributeError, RecursionError):
            continue
    return 0.0


def _unit(name: str) -> str:
    return "GPU" if name == "gpu" else name


def _time(seconds: float, name: str) -> str:
    if seconds < _LONG_S:
        return f"{seconds:.1f} {_unit(name)}-seconds"
    return f"{seconds / 3600:.2f} {_unit(name)}-hours"
