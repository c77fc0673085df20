"""Trains env=lift_cube on all GPUs of this machine and evaluates checkpoints on the CPU's physics.

    python -m tests.robot.gpu.lift --minutes 1 --seeds 0 1 --out lifted --setting near "trainer.gamma=0.98"

A run is `metta-fast train env=ENV env.device=cuda seed=SEED` with its setting's words and the words at the end. After
--minutes from typing it gets Ctrl-C. Then its checkpoints are played on the CPU, 256 episodes on seeds from 100 on that
no training uses, with the most likely actions. Prints a line for each run: success of the last checkpoint, and seconds
from typing until the first checkpoint with 90%. OUT/results.jsonl has both curves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.robot.gpu.runs import finished, gpus, rows_of

SAVING_S = 20.0
"""After so long from Ctrl-C a run is killed."""
GOAL = 0.9
COMMON = [
    "run.dashboard=none",
    "run.tensorboard=false",
    "run.keep_checkpoints=100",
    "run.checkpoint_interval=1",
]


class Job:
    """A run and what is happening to it."""

    def __init__(
        self, folder: Path, env: str, seed: int, words: list[str], limit_s: float, device: str
    ) -> None:
        self.folder, self.words, self.limit_s, self.device = folder, words, limit_s, device
        here = [f"run.dir={folder.parent}", f"run.name={folder.name}", f"seed={seed}"]
        self.command = [sys.executable, "-m", "metta_fast", "train", f"env={env}", *here, *COMMON, *words]

    def start(self, place: str) -> None:
        """Starts the run on a GPU; "": on the CPU."""
        self.place, self.begun, self.asked, self.offset = place, time.monotonic(), False, 0.0
        where = [f"env.device={self.device}"] if place else ["hardware=cpu"]
        self.process = subprocess.Popen(
            [*self.command, *where],
            stdout=open(f"{self.folder}.out", "w"),  # noqa: SIM115
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": place},
        )

    def over(self) -> bool:
        """Ends the run at its limit. Returns whether it has ended."""
        now = time.monotonic()
        if not self.offset and (rows := rows_of(self.folder)):
            self.offset = now - self.begun - rows[0]["train/seconds"]
        if now > self.begun + self.limit_s and not self.asked:
            self.asked = True
            self.process.send_signal(signal.SIGINT)
        elif now > self.begun + self.limit_s + SAVING_S:
            self.process.kill()
        return self.process.poll() is not None


def success(checkpoint: str) -> dict[str, float]:
    """Plays 256 episodes on the CPU."""
    import torch

    import metta_fast

    torch.set_num_threads(1)
    return metta_fast.evaluate(checkpoint, episodes=256, seed=100, deterministic=True, device="cpu")


def result(job: Job, found: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Returns a line of results.jsonl. found: checkpoint → its evaluation."""
    rows = rows_of(job.folder)
    seconds = {int(row["train/steps"]): row["train/seconds"] + job.offset for row in rows}
    evaluated = []
    for checkpoint, figures in sorted(found.items()):
        steps = int(Path(checkpoint).name.removeprefix("step_"))
        after = [s for t, s in seconds.items() if t >= steps]
        evaluated.append([round(min(after, default=0.0), 1), steps, round(figures["success"], 3)])
    training = [
        [round(row["train/seconds"] + job.offset, 1), int(row["train/steps"]), round(row["env/success"], 3)]
        for row in rows
        if row.get("env/success") is not None
    ]
    last = rows[-1] if rows else {}
    return {
        "run": job.folder.name,
        "words": job.words,
        "steps": int(last.get("train/steps", 0)),
        "steps_per_s": round(last.get("perf/steps_per_second_mean", 0)),
        "before_training_s": round(job.offset, 1),
        "success": evaluated[-1][2] if evaluated else None,
        "goal_s": next((s for s, _, share in evaluated if share >= GOAL), None),
        "sampled_goal_s": next((s for s, _, share in training if share >= GOAL), None),
        "last": {name: round(value, 3) for name, value in last.items() if name.startswith("env/")},
        "evaluated": evaluated,
        "training": training[:: max(1, len(training) // 60)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="What env=lift_cube learns on the GPU, evaluated on the CPU."
    )
    parser.add_argument("--env", default="lift_cube")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--per-gpu", type=int, default=1, help="runs at once on a GPU")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each run, from typing")
    parser.add_argument(
        "--cpu-envs", action="store_true", help="environments on the CPU, the learner on the GPU"
    )
    parser.add_argument("--setting", nargs=2, action="append", default=[], metavar=("NAME", "WORDS"))
    parser.add_argument("--checkpoints", type=int, default=12, help="at most so many of a run are evaluated")
    parser.add_argument("--out", type=Path, default=Path("lifted"))
    parser.add_argument("keys", nargs="*", help="key=value for every run")
    given = parser.parse_args()
    (given.out / "runs").mkdir(parents=True, exist_ok=True)
    waiting = [
        Job(
            given.out / "runs" / f"{name}-{seed}",
            given.env,
            seed,
            [*given.keys, *words.split()],
            60 * given.minutes,
            "cpu" if given.cpu_envs else "cuda",
        )
        for seed in given.seeds
        for name, words in given.setting or [("recipe", "")]
    ]
    done = []
    for job in finished(waiting, gpus() * given.per_gpu or [""]):
        done.append(job)
        print(f"{job.folder.name}: trained {rows_of(job.folder)[-1:]}"[:1200], flush=True)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    chosen = {}
    for job in done:
        saved = sorted((job.folder / "checkpoints").glob("step_*"))
        every = max(1, -(-len(saved) // given.checkpoints))
        chosen[job.folder] = [str(path) for path in saved[::-1][::every]]
    everything = [path for paths in chosen.values() for path in paths]
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        figures = dict(zip(everything, pool.map(success, everything, chunksize=1)))
    for job in done:
        line = result(job, {path: figures[path] for path in chosen[job.folder]})
        with open(given.out / "results.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
        print({name: value for name, value in line.items() if name not in ("training", "last")}, flush=True)


if __name__ == "__main__":
    main()
