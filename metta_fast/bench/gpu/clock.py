"""Microseconds of a call on the device: many calls in one CUDA graph, so that launching them is not measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from metta_fast.runtime.cuda_graph import Graph

Call = Callable[[int], object]
"""Takes a running number: calls work on different rows, so that caches help no more than in a run."""

MOST_CALLS, GRAPH_S, REPLAYS = 32, 0.004, 12
"""Calls in a graph: at most so many, or as many as take so long launched one by one."""


@dataclass(frozen=True)
class Time:
    """What a call takes."""

    us: float
    why_launched: str = ""
    """Why it was launched call by call, with gaps between its kernels; "": it was replayed as a CUDA graph."""


def microseconds(call: Call, device: torch.device, replays: int = REPLAYS) -> Time:
    """The median over replays. `call` has run once or more already (compiled)."""
    cuda = device.type == "cuda"
    began = _now(device)
    call(0)
    count = int(min(max(GRAPH_S / (_now(device) - began), 1), MOST_CALLS))

    def calls() -> None:
        for i in range(count):
            call(i)

    told: list[str] = []
    run = Graph("part", calls, enabled=cuda, say=told.append)
    run()
    run()
    times = [_replay(run, device) for _ in range(replays)]
    return Time(1e6 * statistics.median(times) / count, "" if run.captured or not cuda else told[0])


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _replay(run: Callable[[], None], device: torch.device) -> float:
    """Seconds on the device."""
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
