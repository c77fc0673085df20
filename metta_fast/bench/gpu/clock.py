"""Measures the microseconds of a call on the device, with many calls in one CUDA graph so that launches don't count."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from metta_fast.runtime.cuda_graph import Graph

Call = Callable[[int], object]
"""Takes a running number and works on different rows for each, so that caches help no more than in a run."""

MOST_CALLS, GRAPH_S, REPLAYS = 32, 0.004, 12
"""Most calls in a graph, seconds of calls in a graph (launched one by one), and replays of it."""


@dataclass(frozen=True)
class Time:
    """Duration of a call."""

    us: float
    """Microseconds."""
    why_launched: str = ""
    """Reason why it was launched call by call, with gaps between kernels; "": it was replayed as a CUDA graph."""


def microseconds(call: Call, device: torch.device, replays: int = REPLAYS) -> Time:
    """Measures the median over replays. `call` must have run before, so that it is compiled."""
    cuda = device.type == "cuda"
    began = _now(device)
    call(0)
    count = int(min(max(GRAPH_S / (_now(device) - began), 1), MOST_CALLS))

    def calls() -> None:
        for i in range(count):
            call(i)

    reasons: list[str] = []
    run = Graph("part", calls, enabled=cuda, say=reasons.append)
    run()
    run()
    times = [_replay(run, device) for _ in range(replays)]
    return Time(1e6 * statistics.median(times) / count, "" if run.captured or not cuda else reasons[0])


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _replay(run: Callable[[], None], device: torch.device) -> float:
    """Runs once and returns the seconds on the device."""
    if device.type != "cuda":
        began = time.perf_counter()
        run()
        return time.perf_counter() - began
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000
