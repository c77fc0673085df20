"""Trains the knight's tour with action masks, with sb3-contrib's MaskablePPO beside it, and prints the table.

    python -m tests.learn.masked                       # 50,000 steps, two seeds each; one training after the other
    python -m tests.learn.masked --steps 20000 --seeds 1

Ours is `metta-fast train env=metta_fast.envs.sanity.tour:make trainer.total_timesteps=…`, with and without masks
(env.action_mask=none); its peer is MaskablePPO with its own defaults. All are timed as whole processes, and play 100
episodes with the most likely legal action, on seeds from 100 on. PYTHONPATH must find sb3-contrib.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from metta_fast.envs.sanity import tour
from tests.learn.defaults import EPISODES, FIRST_SEED

ENV = "metta_fast.envs.sanity.tour:make"
PLAYERS = ("metta_fast", "MaskablePPO", "metta_fast, env.action_mask=none", "random legal moves")


def main() -> int:
    found = argparse.ArgumentParser(prog="python -m tests.learn.masked", description=__doc__.splitlines()[0])
    found.add_argument("--steps", type=int, default=50_000)
    found.add_argument("--seeds", type=int, default=2)
    found.add_argument("--peer", type=int, help=argparse.SUPPRESS)
    given = found.parse_args()
    if given.peer is not None:
        print(json.dumps(peer(given.steps, given.peer)))
        return 0
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in PLAYERS}
    for seed in range(given.seeds):
        for name, train in (
            ("metta_fast", lambda s: ours(given.steps, s)),
            ("MaskablePPO", lambda s: theirs(given.steps, s)),
            ("metta_fast, env.action_mask=none", lambda s: ours(given.steps, s, "env.action_mask=none")),
        ):
            results[name].append(train(seed))
            print(json.dumps([name, seed, *results[name][-1]]), flush=True)
    results["random legal moves"].append((at_random(), 0.0))
    print("| player | return of at most 99: median (seeds) | seconds, median |\n|---|---|---|")
    for name, rows in results.items():
        scores = [score for score, _ in rows]
        each = ", ".join(f"{score:.1f}" for score in scores)
        print(f"| {name} | {median(scores):.1f} ({each}) | {median(seconds for _, seconds in rows):.0f} |")
    return 0


def ours(steps: int, seed: int, *more: str) -> tuple[float, float]:
    """Returns the score and the seconds of a training by metta_fast's defaults."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            f"env={ENV}",
            f"trainer.total_timesteps={steps}",
            f"seed={seed}",
            f"run.dir={folder}",
            "run.name=run",
        ]
        start = time.monotonic()
        run(["-m", "metta_fast", "train", *words, *more])
        seconds = time.monotonic() - start
        words = [str(Path(folder) / "run"), "--episodes", str(EPISODES), "--seed", str(FIRST_SEED)]
        printed = run(["-m", "metta_fast", "eval", *words, "--deterministic", "--json"])
        return json.loads(printed)["players"]["policy"]["return"], seconds


def theirs(steps: int, seed: int) -> tuple[float, float]:
    """Returns the score and the seconds of a training by MaskablePPO, from the start of its process on."""
    printed = run(["-m", "tests.learn.masked", "--steps", str(steps), "--peer", str(seed)])
    score, seconds = json.loads(printed.splitlines()[-1])
    return score, seconds


def peer(steps: int, seed: int) -> tuple[float, float]:
    """Trains MaskablePPO in this process."""
    start = time.monotonic()
    from sb3_contrib import MaskablePPO
    from sb3_contrib.common.maskable.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    model = MaskablePPO("MlpPolicy", Monitor(tour.Tour()), device="cpu", seed=seed)
    model.learn(steps)
    seconds = time.monotonic() - start
    env: Any = Monitor(tour.Tour())
    env.reset(seed=FIRST_SEED)
    score, _ = evaluate_policy(model, env, n_eval_episodes=EPISODES, deterministic=True)
    return float(score), seconds


def at_random() -> float:
    """Returns the mean return of random legal moves."""
    env, total = tour.Tour(), 0.0
    env.reset(seed=FIRST_SEED)
    for _ in range(EPISODES):
        env.reset()
        over = False
        while not over:
            move = env.np_random.choice(env.action_masks().nonzero()[0])
            _, reward, over, _, _ = env.step(move)
            total += reward
    return total / EPISODES


def run(words: list[str]) -> str:
    """Runs python with these words and returns what it printed."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr[-800:]}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
