"""Compares two runs bit by bit: their states, and their metrics except durations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from metta_fast.metrics.loggers import read_rows


def same(a: Any, b: Any, path: str = "") -> None:
    """Every tensor, array and value of two states is identical, bit for bit; AssertionError names the first other."""
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        for key in a:
            same(a[key], b[key], f"{path}/{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{path}/{i}")
    elif isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype, path
        assert torch.equal(
            a.contiguous().view(torch.uint8) if a.dim() else a,
            b.contiguous().view(torch.uint8) if b.dim() else b,
        ), path
    elif isinstance(a, np.ndarray):
        assert a.tobytes() == b.tobytes(), path
    else:
        assert a == b, path


def numbers(row: dict[str, float]) -> dict[str, float]:
    """What must be equal: all but how long things took."""
    return {k: v for k, v in row.items() if not k.startswith(("perf/", "train/seconds"))}


def curve(run: Path) -> list[dict[str, float]]:
    """The rows of a run's folder, as `numbers`."""
    return [numbers(row) for row in read_rows(run / "metrics.jsonl")]
