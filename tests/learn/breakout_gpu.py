"""Trains breakout on a GPU by several settings until a score, and prints how long each took.

    python -m tests.learn.breakout_gpu                        # all variants, at most 35 s each: under four minutes
    python -m tests.learn.breakout_gpu --variant 2048x64 --limit 60 --score 820

PufferLib 4 logs a breakout score of at most 864 and names no threshold; 800 of 864 as the mean of the last 100 episodes
counts as solved here. Seconds are those of the whole process, its start included, and those since the first step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMON = (
    "env=breakout", "env.device=cuda", "trainer.total_timesteps=2_000_000_000", "trainer.schedule=constant",
    "trainer.compile=false", "run.dashboard=none", "run.tensorboard=false", "run.monitor_interval=0",
    "run.checkpoint_interval=1000000",
)  # fmt: skip
VARIANTS = {
    "1024x32": (1024, 32, 8192, 0.0015),
    "1024x64": (1024, 64, 16384, 0.0015),
    "2048x32": (2048, 32, 16384, 0.002),
    "2048x64": (2048, 64, 16384, 0.002),
    "4096x32": (4096, 32, 32768, 0.003),
    "8192x32": (8192, 32, 32768, 0.003),
}
"""Name → environments, rows of a rollout, rows of a minibatch, learning rate."""
HEADS = (
    ("variant", 9), ("reached", 8), ("process s", 10), ("training s", 11), ("M steps", 8), ("best", 6),
    ("M steps/s", 10),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="breakout_gpu")
    parser.add_argument("--variant", action="append", choices=sorted(VARIANTS), help="only these")
    parser.add_argument("--limit", type=float, default=35.0, help="seconds of each")
    parser.add_argument("--score", type=float, default=800.0)
    parser.add_argument("words", nargs="*", help="more words of the command, such as trainer.update_epochs=3")
    given = parser.parse_args()
    print(" ".join(f"{head:>{width}}" for head, width in HEADS))
    for name in given.variant or VARIANTS:
        print(trained(name, given.words, given.score, given.limit), flush=True)
    return 0


def trained(name: str, words: list[str], score: float, limit: float) -> str:
    """Trains one variant and returns its line."""
    with tempfile.TemporaryDirectory() as folder:
        envs, horizon, minibatch, rate = VARIANTS[name]
        sizes = [f"env.num_envs={envs}", f"trainer.batch_size={envs * horizon}",
                 f"trainer.minibatch_size={minibatch}", f"trainer.learning_rate={rate}"]  # fmt: skip
        command = [sys.executable, "-m", "metta_fast", "train", *COMMON, *sizes, *words,
                   f"trainer.stop_at_return={score:g}", f"run.dir={folder}", "run.name=r"]  # fmt: skip
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.terminate()
            said, _ = process.communicate()
        seconds = time.monotonic() - began
        file = Path(folder, "r/metrics.jsonl")
        rows = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    scored = [row for row in rows if row.get("env/return_100") is not None]
    if not scored:
        return f"{name:>9} no episode ended: {said.strip()[-300:]}"
    best, last = max(row["env/return_100"] for row in scored), rows[-1]
    cells = (
        name, "yes" if best >= score else "no", f"{seconds:.1f}", f"{last.get('train/seconds', 0.0):.1f}",
        f"{last['train/steps'] / 1e6:.1f}", f"{best:.0f}", f"{last['perf/steps_per_second_mean'] / 1e6:.2f}",
    )  # fmt: skip
    return " ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, HEADS, strict=True))


if __name__ == "__main__":
    raise SystemExit(main())
