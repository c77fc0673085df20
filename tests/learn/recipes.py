"""Trains a recipe and prints how long it took to half and to 90% of the score that it ended with.

python -m tests.learn.recipes grid_solo                                            # hardware=auto, 50M steps
python -m tests.learn.recipes grid hardware=h200 trainer.total_timesteps=800000000
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import NamedTuple

SCORES = ("env/hearts", "env/return")
"""The score is the first of these metrics that the recipe has."""
WINDOW = 3
"""Rows of metrics over which the score is averaged."""


class Point(NamedTuple):
    seconds: float
    """Of training, without the program's start."""
    steps: int
    score: float


def learning_curve(metrics: Path) -> tuple[str, list[Point]]:
    """Returns the score's name, and its means over WINDOW rows of metrics.jsonl."""
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    name = next(score for score in SCORES if any(score in row for row in rows))
    rows = [row for row in rows if name in row]
    windows = [rows[max(0, i - WINDOW + 1) : i + 1] for i in range(len(rows))]
    return name, [
        Point(part[-1]["train/seconds"], part[-1]["train/steps"], mean(row[name] for row in part))
        for part in windows
    ]


def reached(curve: list[Point], share: float) -> Point:
    """Returns the first point with this share of the last score."""
    return next(point for point in curve if point.score >= share * curve[-1].score)


def main(env: str, *words: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        quiet = ["run.evaluate_interval=0", "run.replay_interval=0", f"run.dir={folder}", "run.name=run"]
        command = [sys.executable, "-m", "metta_fast", "train", f"env={env}", *words, *quiet]
        subprocess.run(command, check=True)
        name, curve = learning_curve(Path(folder) / "run" / "metrics.jsonl")
    for title, point in (
        ("half", reached(curve, 0.5)),
        ("90%", reached(curve, 0.9)),
        ("end", curve[-1]),
    ):
        print(f"{env}: {title}: {name} {point.score:.3g} after {point.seconds:.1f} s, {point.steps:,} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
