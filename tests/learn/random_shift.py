"""Trains Catch with and without trainer.random_shift, and plays it with the picture as it was and moved.

    python -m tests.learn.random_shift                       # 200,000 steps, three seeds each; one after the other
    python -m tests.learn.random_shift --lanes 6 trainer.device=cuda
    python -m tests.learn.random_shift --steps 2000 --seeds 1 --episodes 8

Trainings are the command `metta-fast train env=metta_fast.envs.sanity.catch:make`, by the defaults. A player chooses
the most likely action, on seeds from 100 on; the picture of an episode is moved by up to so many pixels along both
sides (tests/learn/shifted_catch.py). The return is 1 for a ball that is caught, −1 for another.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np

import metta_fast
from tests.learn.defaults import FIRST_SEED
from tests.learn.shifted_catch import ShiftedCatch

MOVES = (0, 2, 4, 7)
"""Most pixels by which pictures are moved; a cell of the game has 7."""


class Trained(NamedTuple):
    """The result of one training."""

    shift: int
    seed: int
    seconds: float
    returns: dict[int, float]
    """MOVES ─► mean return."""


def main() -> int:
    found = argparse.ArgumentParser(
        prog="python -m tests.learn.random_shift", description=__doc__.splitlines()[0]
    )
    found.add_argument("--steps", type=int, default=200_000)
    found.add_argument("--seeds", type=int, default=3)
    found.add_argument(
        "--shift", type=int, default=4, help="trainer.random_shift of the one half (default: 4)"
    )
    found.add_argument("--episodes", type=int, default=500, help="of each player and column (default: 500)")
    found.add_argument("--lanes", type=int, default=1, help="trainings at a time (default: 1)")
    found.add_argument("words", nargs="*", help="more words of both commands, such as trainer.device=cuda")
    given = found.parse_args()
    jobs = [(shift, seed) for seed in range(given.seeds) for shift in (given.shift, 0)]

    def work(job: tuple[int, int]) -> Trained:
        shift, seed = job
        with tempfile.TemporaryDirectory() as folder:
            words = [f"trainer.total_timesteps={given.steps}", f"seed={seed}", *given.words]
            if shift:
                words.append(f"trainer.random_shift={shift}")
            start = time.monotonic()
            train(folder, words, lanes=given.lanes)
            seconds = time.monotonic() - start
            returns = {pixels: play(Path(folder) / "run", pixels, given.episodes) for pixels in MOVES}
        print(f"shift {shift}, seed {seed}: {seconds:.0f} s, {returns}", flush=True)
        return Trained(shift, seed, seconds, returns)

    with ThreadPoolExecutor(given.lanes) as pool:
        results = list(pool.map(work, jobs))
    moved = " | ".join(f"moved ≤ {pixels}" if pixels else "as it was" for pixels in MOVES)
    print(f"| trainer.random_shift | {moved} | seconds |\n|{'---|' * (len(MOVES) + 2)}")
    for shift in (0, given.shift):
        own = [one for one in results if one.shift == shift]
        cells = [
            f"{mean(values):.2f} ({min(values):.2f} … {max(values):.2f})"
            for values in ([one.returns[pixels] for one in own] for pixels in MOVES)
        ]
        print(f"| {shift} | {' | '.join(cells)} | {mean(one.seconds for one in own):.0f} |")
    return 0


def train(folder: str, words: list[str], *, lanes: int) -> None:
    """Trains once, by the number of cores that each lane has."""
    cores = max(1, len(os.sched_getaffinity(0)) // lanes)
    command = [
        "-m",
        "metta_fast",
        "train",
        "env=metta_fast.envs.sanity.catch:make",
        f"trainer.torch_threads={cores}",
    ]
    done = subprocess.run(
        [sys.executable, *command, f"run.dir={folder}", "run.name=run", *words],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr[-800:]}")


def play(run: Path, pixels: int, episodes: int) -> float:
    """Returns the mean return of episodes whose picture is moved by up to `pixels`, all played at once."""
    policy = metta_fast.load_policy(str(run), device="cpu", deterministic=True)
    games = [ShiftedCatch(pixels) for _ in range(episodes)]
    images = [game.reset(seed=FIRST_SEED + i)[0] for i, game in enumerate(games)]
    over = False
    while not over:  # all episodes have the same length
        actions = policy.act({"obs": np.stack(images)})[:, 0]
        steps = [game.step(action) for game, action in zip(games, actions)]
        images, over = [step[0] for step in steps], steps[0][2]
    return mean(step[1] for step in steps)


if __name__ == "__main__":
    sys.exit(main())
