"""A training run whose workers are killed and stopped from outside while vector.restart_workers restarts them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import psutil

from metta_fast.metrics.loggers import read_rows
from tests.tiny import QUIET, named
from tests.vector.soak.judge import Sample

KEYS = (
    *QUIET,
    "env=grid",
    "env.num_envs=16",
    "env.max_steps=100",
    "vector.backend=workers",
    "vector.num_workers=2",
    "vector.restart_workers=1000000",
    "vector.worker_timeout_s=3",
    "trainer.total_timesteps=1000000000000",
    "trainer.batch_size=4096",
    "trainer.minibatch_size=1024",
    "trainer.bptt_horizon=16",
    "policy.hidden_size=32",
    "run.checkpoint_interval=20",
)
CHILDREN = 3
"""The launcher and two workers."""
STOPPED_BY_SIGTERM = 143
LOOK_S = 1.0
TROUBLES = ("kill", "kill", "kill", "stop", "pause", "kill launcher")


class Training:
    """Runs the training in a process of its own; a thread samples it and makes trouble."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seen, self.rows = folder, Counter[str](), 0
        self._rng, self._samples = random.Random(seed), list[Sample]()
        self._log = (folder / "log.txt").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "metta_fast", "train", *KEYS, *named(folder)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._psutil = psutil.Process(self.process.pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def begin(self, limit_s: float) -> None:
        """Waits for the first rows of metrics, then starts to sample and to make trouble."""
        deadline = time.monotonic() + limit_s
        while self.count_rows() < 2:
            self.check()
            assert time.monotonic() < deadline, f"no epoch within {limit_s:g} s: {self.log()}"
            time.sleep(0.2)
        self._thread.start()

    def count_rows(self) -> int:
        """Rows of metrics so far."""
        path = self.folder / "r" / "metrics.jsonl"
        self.rows = sum(1 for _ in path.open("rb")) if path.exists() else 0
        return self.rows

    def check(self) -> None:
        """Raises AssertionError if the run has ended."""
        assert self.process.poll() is None, f"the run ended with {self.process.returncode}: {self.log()}"

    def sample(self) -> Sample:
        """What it held since the last call, with all its workers."""
        samples, self._samples = self._samples, []
        return Sample.least(samples or [Sample.of(self._psutil)], CHILDREN)

    def log(self) -> str:
        """The end of what the run printed."""
        self._log.flush()
        return Path(self._log.name).read_text()[-4000:]

    def finish(self, limit_s: float) -> list[str]:
        """Stops the run by SIGTERM. Returns sentences on what was wrong."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        wrong = []
        self.process.terminate()
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return [f"training: SIGTERM did not end it within {limit_s:g} s: {self.log()}"]
        if code != STOPPED_BY_SIGTERM:
            wrong.append(f"training: it ended with {code}: {self.log()}")
        rows = list(read_rows(self.folder / "r" / "metrics.jsonl"))
        epochs = [row["train/epoch"] for row in rows]
        if epochs != list(range(1, len(epochs) + 1)):
            wrong.append("training: rows of metrics are missing or doubled")
        self.seen["restarts"] = int(rows[-1].get("perf/worker_restarts", 0))
        if sum(self.seen[what] for what in TROUBLES if what != "pause") and not self.seen["restarts"]:
            wrong.append("training: no worker was restarted")
        return wrong

    def close(self) -> None:
        """Kills the run if it still goes on; its launcher and workers end with it."""
        self._ended.set()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()

    def _watch(self) -> None:
        due = time.monotonic() + self._rng.uniform(1, 4)
        while not self._ended.wait(LOOK_S):
            try:
                self._samples.append(Sample.of(self._psutil))
                if time.monotonic() > due:
                    self._make_trouble(self._rng.choice(TROUBLES))
                    due = time.monotonic() + self._rng.uniform(2, 10)
            except psutil.Error:
                continue  # it ended just now: the next check tells

    def _make_trouble(self, what: str) -> None:
        kind = "mf-launcher" if "launcher" in what else "mf-worker"
        victims = [p for p in self._psutil.children(recursive=True) if p.name().startswith(kind)]
        if victims:
            victim = self._rng.choice(victims)
            victim.send_signal(signal.SIGKILL if "kill" in what else signal.SIGSTOP)
            self.seen[what] += 1
            if what == "pause":
                self._ended.wait(0.5)
                victim.send_signal(signal.SIGCONT)
