"""Runs the soak (see __init__.py). Ends with 1 if something hangs, fails, grows or is left.

python -m tests.vector.soak --minutes 60               # an hour; a table at the end
python -m tests.vector.soak --minutes 60 --seed 17     # the same choices; their timing is the machine's
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.vector.soak import vectors
from tests.vector.soak.judge import MARK, Sample, drift, marked, shared_files
from tests.vector.soak.training import Training

START_S = 120.0
"""Limit until the training's first rows."""
STILL_S = 150.0
"""Seconds without a row of the training, or a sample of the vectors, after which it is reported as hung. A worker that
is stopped while it starts is given up after 60 s."""
END_S = 60.0


class Vectors:
    """The process of vectors.py."""

    def __init__(self, seed: int, every: float) -> None:
        self.samples: list[Sample] = []
        self.last: dict[str, Any] = {"rounds": 0, "seen": {}}
        self._text, self._came = b"", time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", vectors.__name__, str(seed), str(every)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    def read(self, wait_s: float) -> bool:
        """Reads for wait_s seconds at most. Returns whether a sample came; AssertionError: it hangs or has ended."""
        assert self.process.stdout is not None
        if select.select([self.process.stdout], [], [], wait_s)[0]:
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            assert part, f"vectors: the process ended with {self.process.wait()}; its error is above"
            self._text += part
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            self.last = json.loads(line)
            self.samples.append(Sample(**self.last["sample"]))
            self._came = time.monotonic()
        assert time.monotonic() - self._came < STILL_S, f"vectors: no sample for {STILL_S:g} s"
        return bool(lines)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def soak(seconds: float, every: float, seed: int, folder: Path) -> list[str]:
    """Runs both programs. Returns sentences on what was wrong."""
    rng = random.Random(seed)
    mark = os.environ[MARK] = f"{os.getpid()}-{time.time()}"
    samples: list[Sample] = []
    lines = []
    training = Training(folder, rng.getrandbits(32))
    steps = None
    try:
        training.begin(START_S)
        steps = Vectors(rng.getrandbits(32), every)
        start = moved = time.monotonic()
        while time.monotonic() - start < seconds or len(steps.samples) < 3:
            rows = training.rows
            came = steps.read(1.0)
            training.check()
            moved = time.monotonic() if training.count_rows() > rows else moved
            assert time.monotonic() - moved < STILL_S, f"training: no row for {STILL_S:g} s: {training.log()}"
            if came:
                samples.append(training.sample())
                lines.append(line((time.monotonic() - start) / 60, steps, training, samples[-1]))
                print(lines[-1], flush=True)
        wrong = drift("vectors", steps.samples)
        wrong += drift("training", samples)
        wrong += training.finish(END_S)
        print(table(lines), f"vectors: {steps.last['seen']}", f"training: {dict(training.seen)}", sep="\n\n")
    finally:
        if steps is not None:
            steps.close()
        training.close()
    return wrong + left(mark)


def left(mark: str, patience_s: float = 10.0) -> list[str]:
    """Sentences on processes and shared memory that outlived both programs by patience_s seconds."""
    deadline = time.monotonic() + patience_s
    while (processes := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    wrong = [f"left behind: process {p.pid} {p.name()}" for p in processes if p.is_running()]
    return wrong + [f"left behind: {name} in /dev/shm" for name in shared_files()]


COLUMNS = ("memory MiB", "threads", "descriptors", "children")


def line(minute: float, steps: Vectors, training: Training, sample: Sample) -> str:
    """A row of the table."""
    cells = [f"{minute:.1f}", str(steps.last["rounds"]), *figures(steps.samples[-1])]
    cells += [str(training.rows), *figures(sample), f"{sample.shared_files:g}"]
    return f"| {' | '.join(cells)} |"


def figures(sample: Sample) -> list[str]:
    return [f"{v:.0f}" for v in (sample.rss_mib, sample.threads, sample.descriptors, sample.children)]


def table(lines: list[str]) -> str:
    """The samples as a table in Markdown."""
    heads = ["minute", "rounds", *(f"vectors: {c}" for c in COLUMNS)]
    heads += ["rows", *(f"training: {c}" for c in COLUMNS), "/dev/shm"]
    return "\n".join(["", f"| {' | '.join(heads)} |", "|" + "---:|" * len(heads), *lines])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vector.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two samples")
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args(argv)
    seed = random.SystemRandom().getrandbits(31) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            wrong = soak(args.minutes * 60, args.every, seed, Path(folder))
        except AssertionError as error:
            wrong = [str(error)]
    print("\n".join(wrong or ["nothing hung, grew or was left"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # both programs are ended first
    sys.exit(main())
