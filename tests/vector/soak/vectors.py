"""Makes vectors in one process, again and again, while processes of theirs are killed and stopped at random.

Each round checks that a state, loaded into the same vector or into one that replaces a failed one, gives the same rows
again, that a failure is a WorkerError and comes only where something was done to a process, and that nothing takes
longer than ROUND_S (the process ends with tracebacks). Every `every` seconds, with no vector alive, it prints a sample.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import random
import signal
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import gymnasium
import numpy as np
import psutil

from metta_fast import PythonEnvFactory, WorkerError, make_vector
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.grid.env import GridFactory
from tests.vector.soak.judge import Sample

ROUND_S = 90.0
"""Limit of a round: the start of workers, two waits for a stopped one, two closings, on a busy machine."""
TIMEOUT_S = 2.0
TROUBLES = (
    "none",
    "none",
    "kill",
    "kill",
    "stop",
    "pause",
    "kill launcher",
    "stop launcher",
    "kill at the start",
)
ENDS = ("close", "drop", "drop in flight", "close in flight")


class Stateful(gymnasium.Env):
    """A Python environment whose state has a given size."""

    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (8,), np.float64)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, index: int, size: int) -> None:
        self.index, self.ballast = index, np.zeros(size, np.uint8)
        self.sum, self.t, self.resets = 0, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.resets += 1
        self.sum, self.t = (31 * self.index + 17 * self.resets) % 100, 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t += 1
        self.sum = self.sum * 3 % 10_007 + int(action)
        self.ballast[self.sum % len(self.ballast)] += 1
        return self._observation(), float(self.sum), self.sum % 50 == 0, self.t == 40, {}

    def _observation(self) -> np.ndarray:
        return np.full(8, self.sum + int(self.ballast[self.sum % len(self.ballast)]), np.float64)

    def state_dict(self) -> dict[str, Any]:
        return {"counts": [self.sum, self.t, self.resets], "ballast": self.ballast.copy()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sum, self.t, self.resets = state["counts"]
        self.ballast = state["ballast"].copy()


class Make:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, index: int) -> Stateful:
        return Stateful(index, self.size)


FACTORIES: dict[str, Callable[[], Any]] = {
    "python, small": lambda: PythonEnvFactory(Make(100)),
    "python, large": lambda: PythonEnvFactory(Make(300_000)),
    "counter": CounterFactory,
    "grid": lambda: GridFactory(num_agents=2, max_steps=50),
}


class Trouble(threading.Thread):
    """Does something to a process of this program's vectors, some time after it was started."""

    def __init__(self, what: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.what, self.done, self._rng, self._after = what, False, rng, rng.uniform(0.0, 0.4)
        self.start()

    def run(self) -> None:
        kind = "mf-launcher" if "launcher" in self.what else "mf-worker"
        time.sleep(self._after)
        children = psutil.Process().children(recursive=True)
        victims = [p for p in children if _name(p).startswith(kind)]
        if self.what == "none" or not victims:
            return
        victim = self._rng.choice(victims)
        number = signal.SIGKILL if "kill" in self.what else signal.SIGSTOP
        try:
            victim.send_signal(number)
            self.done = True
            if self.what == "pause":
                time.sleep(0.5)
                victim.send_signal(signal.SIGCONT)
        except psutil.NoSuchProcess:
            return


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def play(vec: Any, steps: int, seed: int) -> int:
    """Steps all blocks with actions of this seed; a checksum of the rows."""
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(steps):
        for block in vec.hold_all():
            shape = block.rows.action.shape
            vec.send(block, rng.integers(0, vec.spec.action.nvec, shape, dtype=np.int32))
        vec.hold_all()
        for rows in (*vec.rows.obs.values(), vec.rows.reward, vec.rows.terminal):
            found = zlib.crc32(np.ascontiguousarray(rows).tobytes(), found)
    return found


class Round:
    """One vector's life, and that of its replacement if it fails."""

    def __init__(self, rng: random.Random, seen: Counter[str]) -> None:
        self.rng, self.seen = rng, seen
        name = rng.choice(list(FACTORIES))
        self.factory = FACTORIES[name]()
        self.keys: dict[str, Any] = {
            "backend": rng.choice(["workers"] * 4 + ["threads", "threads", "serial"])
        }
        envs = rng.randint(2, 9)
        self.keys |= {"num_envs": envs, "num_blocks": rng.randint(1, 2), "worker_timeout_s": TIMEOUT_S}
        self.keys["num_threads"] = rng.randint(1, 2)
        if self.keys["backend"] == "workers":
            self.keys["num_workers"] = rng.randint(1, min(envs, 3))
        self.seed = rng.getrandbits(32)
        self.steps = rng.choice((3, 30, 300))
        self.state: Any = None
        self.rows: int | None = None
        seen[self.keys["backend"]] += 1

    def run(self) -> None:
        what = self.rng.choice(TROUBLES) if self.keys["backend"] == "workers" else "none"
        trouble = Trouble(what, self.rng) if what == "kill at the start" else None
        try:
            vec = make_vector(self.factory, **self.keys)
            trouble = trouble or Trouble(what, self.rng)
            self._live(vec)
            self._end(vec)
        except WorkerError as error:
            self.seen[f"failed: {what}"] += 1
            assert trouble is not None
            trouble.join(ROUND_S)
            if not trouble.done:
                raise  # for no reason
            error.__traceback__ = None  # it refers to the failed vector
            vec = make_vector(self.factory, **self.keys)
            self._live(vec)
            self._end(vec)
        finally:
            if trouble is not None:
                trouble.join(ROUND_S)
                self.seen[what if trouble.done else "none"] += 1

    def _live(self, vec: Any) -> None:
        """Loads the last state, or begins; then steps, saves, loads, steps again."""
        if self.state is None:
            vec.async_reset(self.seed)
            play(vec, self.steps, self.seed)
            self.state = vec.state_dict()
        vec.load_state_dict(self.state)
        for _ in range(2):
            rows = play(vec, self.steps, self.seed + 1)
            assert self.rows in (None, rows), "the same state and actions gave other rows"
            self.rows = rows
            vec.load_state_dict(self.state)

    def _end(self, vec: Any) -> None:
        how = self.rng.choice(ENDS)
        self.seen[how] += 1
        if "flight" in how:
            for block in vec.hold_all():
                vec.send(block, np.zeros(block.rows.action.shape, np.int32))
        if "close" in how:
            vec.close()


def sample() -> Sample:
    """Samples this process when all that ended has been collected; waits at most 10 s for it.

    Two threads stay: this one, and the one that waits for the parent.
    """
    gc.collect()
    me, deadline = psutil.Process(), time.monotonic() + 10
    while (me.children() or threading.active_count() > 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    return Sample.of(me)


def main(seed: int, every: float) -> None:
    """Runs until the parent closes the pipe."""
    rng, seen, rounds = random.Random(seed), Counter[str](), 0
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    due = 0.0
    while True:
        faulthandler.dump_traceback_later(ROUND_S, exit=True)
        Round(rng, seen).run()
        rounds += 1
        if time.monotonic() >= due:
            print(json.dumps({"rounds": rounds, "seen": seen, "sample": asdict(sample())}), flush=True)
            due = time.monotonic() + every
        faulthandler.cancel_dump_traceback_later()


def _end_with_the_parent() -> None:
    sys.stdin.read()
    signal.raise_signal(signal.SIGKILL)  # launchers and workers end with it


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
