"""Reports the results of `--gpu`: training, parts, simulator and scale curve, as tables and as JSON.

    {"machine", "command",
     "training":  [{"name", "overrides", "steps_per_s", "low", "high", "rounds", "epoch_ms", "gpu_utilization",
                    "memory_mib", "phases_ms", "settings", "against": [{"name", "ratio", "low", "high", …}]}],
     "parts":     [{"run", "epoch_us", "phases_ms", "parts": [{"name", "calls", "us", "share", "failed", "launched"}]}],
     "simulator": [{"name", "agents", "steps_per_s", "low", "high", "us_per_row", "memory_mib"}],
     "scale":     [{"line", "value", "overrides", "steps_per_s", "low", "high", "memory_mib"}]}

A configuration that failed has "failed" (one line) and "printed" in place of values. In `training` and `scale`, low
and high are the 10th and 90th percentile of single epochs; elsewhere the slowest and the fastest round.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from metta_fast.bench.gpu.parts_table import parts_lines
from metta_fast.bench.harness.report import Report

Row = dict[str, Any]
SPEEDS = f"{'M steps/s':>9} {'10 %':>8} {'90 %':>8}"


@dataclass
class GpuReport(Report):
    """A Report whose rows are in the lists below."""

    training: list[Row] = field(default_factory=list)
    parts: list[Row] = field(default_factory=list)
    simulator: list[Row] = field(default_factory=list)
    scale: list[Row] = field(default_factory=list)

    def to_json(self) -> Row:
        document: Row = {"machine": self.machine, "command": self.command}
        document |= {name: getattr(self, name) for name in ("training", "parts", "simulator", "scale")}
        return document | ({"notes": self.notes} if self.notes else {})

    def show(self) -> str:
        """Formats all tables as plain text."""
        lines = [self.head(), self.command]
        for row in self.training:
            lines += ["", *training_lines(row)]
        for run in self.parts:
            lines += ["", *parts_lines(run)]
        if self.simulator:
            lines += [
                "",
                f"{'simulator alone':44} {'M steps/s':>9} {'low':>8} {'high':>8} {'µs a row':>9} {'MiB':>7}",
            ]
            lines += [_simulator_line(row) for row in self.simulator]
        last = None
        for row in self.scale:
            if row["line"] != last:
                last = row["line"]
                lines += [
                    "",
                    f"{last:44} {SPEEDS} {'ms/epoch':>9} {'MiB':>7}",
                ]
            lines.append(_scale_line(row))
        return "\n".join(lines + [f"note: {note}" for note in self.notes])


def epochs_row(rounds: Sequence[Row]) -> Row:
    """Summarises rounds of training: median steps per second of the rounds; low and high of single epochs."""
    speeds = sorted(speed for one in rounds for speed in one["epoch_steps_per_s"])
    phases = {
        name: statistics.median(one["phases_ms"][name] for one in rounds) for name in rounds[0]["phases_ms"]
    }
    return {
        "steps_per_s": statistics.median(one["steps_per_s"] for one in rounds),
        "low": speeds[len(speeds) // 10],
        "high": speeds[-1 - len(speeds) // 10],
        "rounds": [one["steps_per_s"] for one in rounds],
        "epochs": len(speeds),
        "epoch_ms": statistics.median(ms for one in rounds for ms in one["epoch_ms"]),
        "phases_ms": phases,
    }


def rounds_row(rounds: Sequence[Row]) -> Row:
    """Summarises rounds of the simulator."""
    speeds = [one["steps_per_s"] for one in rounds]
    return {
        "steps_per_s": statistics.median(speeds),
        "low": min(speeds),
        "high": max(speeds),
        "us_per_row": statistics.median(one["us_per_row"] for one in rounds),
        "memory_mib": rounds[-1]["memory_mib"],
    }


def ratio(above: Row, below: Row) -> Row:
    """Computes above / below, round by round."""
    pairs = [a / b for a, b in zip(above["rounds"], below["rounds"], strict=True)]
    return {"ratio": statistics.median(pairs), "ratio_low": min(pairs), "ratio_high": max(pairs)}


def training_lines(row: Row) -> Iterable[str]:
    """Formats a shape, and one line for each override it is compared with."""
    yield f"{'training: ' + row['name']:50} {SPEEDS} {'ms/epoch':>9} {'GPU':>5} {'MiB':>7}  phases, ms"
    yield _training_line("", row)
    for other in row["against"]:
        if "failed" in other:
            yield f"  {other['name']:48} failed: {other['failed']}"
            continue
        times = ""
        if "ratio" in other:
            times = f"; {other['ratio']:.1f} times ({other['ratio_low']:.1f} to {other['ratio_high']:.1f})"
        yield _training_line(other["name"], other) + times


def _training_line(name: str, row: Row) -> str:
    if "failed" in row:
        return f"  {name:48} failed: {row['failed']}"
    busy = row["gpu_utilization"]
    shown = "   – " if busy is None else f"{busy:4.0f}%"
    phases = ", ".join(f"{phase} {ms:.2f}" for phase, ms in row["phases_ms"].items() if ms >= 0.005)
    return f"  {name:48} {_speeds(row)} {row['epoch_ms']:9.2f} {shown} {_mib(row)}  {phases}"


def _simulator_line(row: Row) -> str:
    if "failed" in row:
        return f"{row['name']:44} failed: {row['failed']}"
    return f"{row['name']:44} {_speeds(row)} {row['us_per_row']:9.1f} {_mib(row)}"


def _scale_line(row: Row) -> str:
    if "failed" in row:
        return f"  {row['value']:42} failed: {row['failed']}"
    return f"  {row['value']:42} {_speeds(row)} {row['epoch_ms']:9.2f} {_mib(row)}"


def _speeds(row: Row) -> str:
    return f"{row['steps_per_s'] / 1e6:9.2f} {row['low'] / 1e6:8.2f} {row['high'] / 1e6:8.2f}"


def _mib(row: Row) -> str:
    return "      –" if row["memory_mib"] is None else f"{row['memory_mib']:7.0f}"
