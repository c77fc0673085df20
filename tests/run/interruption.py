"""Measures the time that an interruption costs: SIGTERM to the process's end, and a new process to its first update.

    python -m tests.run.interruption                                  # the grid on this machine
    python -m tests.run.interruption hardware=h200 env=grid_bench     # keys for the run

Prints a line for each interruption: seconds to save and end, and from the start to the end of the first update (both
as the run logs them). The first start, without warm caches, is shown apart.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from metta_fast.metrics.loggers import read_rows

LIMIT_S = 300.0
SOME_S = 1.0
"""Seconds of training before each interruption."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.run.interruption", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("keys", nargs="*", metavar="key=value")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "metta_fast", "train", "env=grid", *args.keys, "run.dashboard=none"]
        words += [
            "trainer.total_timesteps=1_000_000_000_000",
            f"run.dir={folder}",
            "run.name=r",
            "resume=auto",
        ]
        lost, before = list[float](), 0.0
        for number in range(args.times + 1):
            first, saved = session(words, Path(folder) / "r")
            if number:
                lost.append(before + first)
                print(
                    f"{number}: save and end {before:.2f} s, start to first update {first:.2f} s", flush=True
                )
            else:
                print(f"first start: {first:.2f} s to the first update", flush=True)
            before = saved
    print(f"lost by an interruption: {statistics.median(lost):.2f} s (median of {len(lost)})")
    return 0


def session(words: list[str], run: Path) -> tuple[float, float]:
    """Trains until after the first update, then ends the session by SIGTERM.

    Returns:
        Seconds to the first update, and seconds from the signal to the end.
    """
    began, steps = time.monotonic(), newest(run).get("train/steps", 0.0)
    with open(run.with_suffix(".txt"), "w") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said)
    while newest(run).get("train/steps", 0.0) == steps:
        assert process.poll() is None, run.with_suffix(".txt").read_text()
        assert time.monotonic() - began < LIMIT_S, "no update in time"
        time.sleep(0.01)
    first = newest(run)["perf/first_update_s"]
    time.sleep(SOME_S)
    signalled = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code = process.wait(LIMIT_S)
    assert code == 143, run.with_suffix(".txt").read_text()
    return first, time.monotonic() - signalled


def newest(run: Path) -> dict[str, float]:
    rows = list(read_rows(run / "metrics.jsonl"))
    return rows[-1] if rows else {}


if __name__ == "__main__":
    sys.exit(main())
