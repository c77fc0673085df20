"""Samples what a process holds, and judges whether it stayed flat."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields

import psutil

MIB = 1 << 20
SHARED = "/dev/shm"
ALLOWED = {"rss_mib": 48.0, "threads": 0.0, "descriptors": 0.0, "children": 0.0, "shared_files": 0.0}
"""By how much each may be higher at the end than at the beginning. Resident memory: an allocator's fragments."""
MARK = "METTA_FAST_SOAK"
"""Environment variable whose value all processes of one soak inherit."""


@dataclass(frozen=True)
class Sample:
    """What one process held at one time."""

    rss_mib: float
    threads: float
    descriptors: float
    children: float
    shared_files: float

    @classmethod
    def of(cls, process: psutil.Process) -> Sample:
        """Samples a process. Raises psutil.NoSuchProcess if it has ended."""
        return cls(
            process.memory_info().rss / MIB,
            process.num_threads(),
            process.num_fds(),
            len(process.children(recursive=True)),
            len(shared_files()),
        )

    @classmethod
    def least(cls, samples: Sequence[Sample], children: int) -> Sample:
        """The least of each over samples taken while the process was busy; the median of its memory.

        Args:
            children: how many it has while it works. Samples with another number were taken during a restart, with
                fewer descriptors, and are left out if there are others.
        """
        samples = [s for s in samples if s.children == children] or samples
        rest = {f.name: min(getattr(s, f.name) for s in samples) for f in fields(cls)}
        return cls(**{**rest, "rss_mib": statistics.median(s.rss_mib for s in samples)})


def shared_files() -> list[str]:
    """Names in /dev/shm that this package could have left."""
    if not os.path.isdir(SHARED):
        return []
    return [name for name in os.listdir(SHARED) if "metta" in name or name.startswith("mf_")]


def marked(mark: str) -> list[psutil.Process]:
    """All processes of the soak with this mark, but this one: also those that were adopted by another parent."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def drift(name: str, samples: Sequence[Sample]) -> list[str]:
    """Returns sentences on what grew: the median of the last third of the samples against that of the first third.

    The first sample is left out if there are more than three: caches and allocators fill up.
    """
    found = []
    samples = samples[1:] if len(samples) > 3 else samples
    if len(samples) < 2:
        return [f"{name}: too few samples to judge ({len(samples)})"]
    third = max(len(samples) // 3, 1)
    for what, allowed in ALLOWED.items():
        first, last = (
            statistics.median(getattr(s, what) for s in part) for part in (samples[:third], samples[-third:])
        )
        if last - first > allowed:
            found.append(f"{name}: {what} grew from {first:g} to {last:g}; {allowed:g} more are allowed")
    return found
