"""Stops and resumes a run of every recipe with every backend, and prints a table.

    python -m tests.run.resume_table                  # some minutes; with a GPU, its backend as well
    python -m tests.run.resume_table grid ant --backends workers

Each cell is a process of its own. It trains a deterministic run to its end, and the same run with a SIGTERM at a random
moment, which saves a checkpoint and ends it, and resume=auto. In a cell:

    same       weights, optimizer, environments and metrics are those of the run that nothing stopped, bit for bit
    goes on    it trains to its end, epochs without a gap or a double; the environments have no state to save
    —          the recipe has no environments on the GPU

Ends with 1 if a cell is anything else.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

# what a cell would import is imported here
import metta_fast.run.build
import metta_fast.run.trainer  # noqa: F401
from metta_fast.cli import main as train
from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.same import curve, same
from tests.run.test_end_to_end import signal_after
from tests.tiny import QUIET, named

ROOT = Path(__file__).parents[2]
BACKENDS = {
    "serial": ["vector.backend=serial"],
    "threads": ["vector.backend=threads", "vector.num_threads=2"],
    "workers": ["vector.backend=workers", "vector.num_workers=2"],
    "gpu": ["env.device=cuda", "trainer.device=cuda"],
}
LIMIT_S = 400.0
NUM_ENVS, HORIZON, EPOCHS, STOP_AFTER = 4, 8, 60, 3
STOPPED = 128 + signal.SIGTERM
MAP = """
#######
#@....#
#..m.a#
#....@#
#######
"""


class Env(gymnasium.Env):
    """A Python environment; with states if `Stateful`."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, index: int) -> None:
        self.index, self.t, self.sum, self.episodes = index, 0, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.t, self.sum, self.episodes = 0, self.index, self.episodes + 1
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.t, self.sum = self.t + 1, self.sum + int(action)
        return self._observation(), float(self.sum % 3 == 0), self.sum % 11 == 10, self.t == 9, {}

    def _observation(self) -> np.ndarray:
        return np.sin(np.array([self.sum, self.t, self.episodes], np.float32))


class Stateful(Env):
    def state_dict(self) -> dict[str, Any]:
        return {"t": self.t, "sum": self.sum, "episodes": self.episodes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.t, self.sum, self.episodes = state["t"], state["sum"], state["episodes"]


def make(config: Any) -> type[Env]:
    return Env


def make_stateful(config: Any) -> type[Env]:
    return Stateful


def recipes(folder: Path) -> dict[str, list[str]]:
    """Name → overrides of every recipe in configs/env, and of a Python environment with and without states."""
    (folder / "map.txt").write_text(MAP)
    found = {path.stem: [f"env={path.stem}"] for path in sorted((ROOT / "configs/env").glob("*.yaml"))}
    found["grid_map"] += [f"env.params.map={folder}/map.txt", "env.agents_per_env=2"]
    for name in ("atari", "custom", "gymnasium", "minigrid"):  # they need a value typed
        del found[name]
    found["custom, with states"] = ["env=tests.run.resume_table:make_stateful"]
    found["custom, without"] = ["env=tests.run.resume_table:make", "trainer.deterministic=false"]
    found["robot"] += ["env.factory=robot", "env.params.task=hopper"]
    return found


def words(recipe: list[str], backend: str) -> list[str]:
    """The run's overrides but its folder. Raises UserError: the recipe has no such backend."""
    more = [*QUIET, *recipe, *BACKENDS[backend], f"env.num_envs={NUM_ENVS}", "env.max_steps=20"]
    more += ["trainer.update_epochs=1", f"trainer.bptt_horizon={HORIZON}"]
    if not any("deterministic" in word for word in recipe):
        more.append("trainer.deterministic=true")
    agents = make_factory(compose(more).config.env).spec.agents_per_env
    batch = NUM_ENVS * agents * HORIZON * 2
    more += [f"trainer.batch_size={batch}", f"trainer.minibatch_size={batch}"]
    more += [
        f"trainer.total_timesteps={EPOCHS * batch}",
        "run.min_interval_s=0",
        "run.checkpoint_interval=1000",
    ]
    resolve(compose(more))
    return more


def cell(recipe: list[str], backend: str, folder: Path) -> str:
    """Does a cell's work; returns its text."""
    try:
        more = words(recipe, backend)
    except UserError as error:
        if backend != "gpu":
            raise
        return f"— {error}"
    whole, broken = folder / "whole", folder / "broken"
    codes = [train(["train", *more, *named(whole)])]
    thread = signal_after(broken, STOP_AFTER, signal.SIGTERM)
    codes.append(train(["train", *more, *named(broken)]))
    thread.join()
    stopped = checkpoint.latest(RunDir(broken / "r").checkpoints, pytest.fail)
    codes.append(train(["train", *more, *named(broken), "resume=auto"]))
    assert codes == [0, STOPPED, 0], f"exit codes {codes}"
    a, b = (checkpoint.latest(RunDir(f / "r").checkpoints, pytest.fail) for f in (whole, broken))
    assert stopped is not None
    assert a is not None
    assert b is not None
    at = f"stopped at epoch {stopped.meta['epoch']} of {a.meta['epoch']}"
    assert STOP_AFTER <= stopped.meta["epoch"] < a.meta["epoch"], at
    rows = curve(broken / "r")
    assert [row["train/epoch"] for row in rows] == list(range(1, b.meta["epoch"] + 1))
    assert all(x["train/steps"] < y["train/steps"] for x, y in pairwise(rows))
    if a.load("env") is None:
        assert b.step >= b.meta["config"]["trainer"]["total_timesteps"]
        return f"goes on ({at})"
    assert a.step == b.step
    same(a.load("algorithm"), b.load("algorithm"), "algorithm")
    same(a.load("env"), b.load("env"), "env")
    assert curve(whole / "r") == rows, "other metrics"
    return f"same ({at})"


def in_a_process(name: str, backend: str) -> str:
    """Does a cell's work in a forked process, in a folder of its own; what it printed is shown if it fails."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        process = multiprocessing.get_context("fork").Process(target=_child, args=(name, backend, folder))
        process.start()
        process.join(LIMIT_S)
        if process.is_alive():
            process.kill()
            process.join()
            return f"HANGS: not done after {LIMIT_S:g} s"
        if process.exitcode == 0:
            return (folder / "cell.txt").read_text()
        said = (folder / "out.txt").read_text()
    print(said, file=sys.stderr)
    return f"FAILS: {(said.strip().splitlines() or ['?'])[-1]}"


def _child(name: str, backend: str, folder: Path) -> None:
    out = os.open(folder / "out.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    (folder / "cell.txt").write_text(cell(recipes(folder)[name], backend, folder))


def backends_here() -> list[str]:
    """The backends to try: gpu only where there is one."""
    return [name for name in BACKENDS if name != "gpu" or torch.cuda.is_available()]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.run.resume_table", description=__doc__.splitlines()[0]
    )
    parser.add_argument("recipes", nargs="*", help="names of configs/env; without: all")
    parser.add_argument("--backends", nargs="*", help=", ".join(BACKENDS))
    args = parser.parse_args(argv)
    backends = args.backends or backends_here()
    with tempfile.TemporaryDirectory() as folder:
        names = args.recipes or list(recipes(Path(folder)))
    print(f"| recipe | {' | '.join(backends)} |\n|---|{'---|' * len(backends)}", flush=True)
    wrong, notes, start = 0, {}, time.monotonic()
    for name in names:
        texts = [in_a_process(name, backend) for backend in backends]
        wrong += sum(text.startswith(("FAILS", "HANGS")) for text in texts)
        notes |= {f"{name}, {b}": t[2:] for b, t in zip(backends, texts) if t.startswith("— ")}
        print(f"| {name} | {' | '.join('—' if t.startswith('— ') else t for t in texts)} |", flush=True)
    print("", *(f"- {where}: {why}" for where, why in notes.items()), sep="\n")
    print(f"{wrong} wrong; {time.monotonic() - start:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
