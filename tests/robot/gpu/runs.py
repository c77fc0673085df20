"""Starts runs on the GPUs of this machine, and reads their metrics (learn.py, lift.py, randomize.py)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from metta_fast.metrics.loggers import read_rows


def finished(waiting: list[Any], places: list[str]) -> Iterator[Any]:
    """Runs one job on each place at a time, and yields each when it is over.

    Args:
        waiting: jobs with start(place), over() and `place`, in their order; emptied.
        places: names of GPUs, one for each run at once.

    Raises:
        SystemExit: there is no place.
    """
    if not places:
        raise SystemExit("no GPU was found by nvidia-smi, and these runs need one")
    free, running = list(places), []
    while waiting or running:
        while waiting and free:
            running.append(waiting.pop(0))
            running[-1].start(free.pop(0))
        time.sleep(0.2)
        for job in [job for job in running if job.over()]:
            running.remove(job)
            free.append(job.place)
            yield job


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of a run's metrics; [] before there are any."""
    file = folder / "metrics.jsonl"
    return list(read_rows(file)) if file.exists() else []


def gpus() -> list[str]:
    """Returns the GPUs by their numbers, without CUDA in this process."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name for name in listed.split(",") if name]
    try:
        found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [str(number) for number, _ in enumerate(found.splitlines())]
