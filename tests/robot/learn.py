"""Trains robots on several tasks and seeds, each on its own core, and compares with published scores.

    python -m tests.robot.learn                        # five seeds of four tasks, as many at once as cores
    python -m tests.robot.learn --tasks ant humanoid --seeds 3 --jobs 8 --seconds 3000 --out learnt
    python -m tests.robot.learn --out learnt --table                  # the table of what is there
    python -m tests.robot.learn --tasks hopper --out tried trainer.learning_rate=1e-3    # keys for every run

A run is `metta-fast train env=TASK seed=SEED` with the task's recipe. One that ended is evaluated with the most likely
actions, the normaliser frozen, on EPISODES starts that no training sees, and gets a line in OUT/results.jsonl.
At the time limit, Ctrl-C or SIGTERM the runs save and end; the same command goes on with them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metta_fast.metrics.loggers import read_rows

PUBLISHED = {
    "half_cheetah": "1443 | 5784 ± 1244",
    "hopper": "2383 | 2609 ± 701",
    "walker2d": "2288 | 3588 ± 757",
    "ant": "– | 3258 ± 1079",
    "humanoid": "– | 787 ± 194",
    "swimmer": "– | 67 ± 99",
    "reacher": "– | −4.1 ± 0.3",
    "inverted_pendulum": "– | 1000 ± 0",
    "inverted_double_pendulum": "– | 9231 ± 270",
    "pusher": "– | –",
    "humanoid_standup": "– | –",
}
"""CleanRL's PPO | Tianshou's, at a million steps: v3 and v4 tasks; these are v5."""
LONGEST_FIRST = (
    "humanoid_standup",
    "humanoid",
    "ant",
    "walker2d",
    "hopper",
    "swimmer",
    "pusher",
    "half_cheetah",
)
CORES = {"humanoid": 2, "humanoid_standup": 2}
"""Stepping threads of a run, where one would make it much longer than the others."""
EPISODES = 20
EVALUATION_S = 30.0
"""Kept of the time limit for evaluations."""
CURVE_STEPS = 50_000
"""A point of the curve is the mean over so many steps."""


@dataclass
class Job:
    """A run and what is happening to it."""

    task: str
    seed: int
    folder: Path
    words: list[str]
    episodes: int
    process: subprocess.Popen[str] | None = None
    begun: float = 0.0
    wall_s: float = 0.0
    evaluating: bool = False

    @property
    def cores(self) -> int:
        return CORES.get(self.task, 1)

    def start(self, words: list[str]) -> None:
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdout=subprocess.PIPE if self.evaluating else subprocess.DEVNULL,
            stderr=open(self.folder.parent / f"{self.folder.name}.err", "a"),  # noqa: SIM115
            text=True,
            start_new_session=True,  # Ctrl-C is for this process; it passes it on
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def train(self) -> None:
        here = [f"run.dir={self.folder.parent}", f"run.name={self.folder.name}", "resume=auto"]
        self.start(
            [
                "metta_fast",
                "train",
                f"env={self.task}",
                f"seed={self.seed}",
                *here,
                f"vector.num_threads={self.cores}",
                *self.words,
            ]
        )

    def evaluate(self) -> None:
        self.wall_s, self.evaluating = time.monotonic() - self.begun, True
        self.start(["tests.robot.learn", "--evaluate", str(self.folder), "--episodes", str(self.episodes)])


def evaluate(folder: Path, episodes: int) -> dict[str, Any]:
    """Returns of the newest checkpoint's policy with its most likely actions."""
    import torch

    from metta_fast.contracts.env import EVAL_SEED_BIT
    from metta_fast.inference.evaluate import load_run
    from metta_fast.inference.players import PolicyPlayer, play

    torch.set_num_threads(1)
    config, policy, device, _, factory = load_run(str(folder), best=False)
    player = PolicyPlayer(policy, factory.spec, device, deterministic=True)
    seed, most = EVAL_SEED_BIT | config.seed, config.env.max_steps
    returns = play(factory, player, episodes, seed=seed, max_steps=most).returns
    return {"mean": float(returns.mean()), "std": float(returns.std()), "episodes": episodes}


def result(job: Job, evaluation: dict[str, Any] | None) -> dict[str, Any]:
    """A line of results.jsonl."""
    bins: dict[int, list[float]] = {}
    steps, seconds = 0, 0.0
    for row in read_rows(job.folder / "metrics.jsonl"):
        steps, seconds = int(row["train/steps"]), float(row["train/seconds"])
        if row.get("env/return") is not None:
            bins.setdefault(steps // CURVE_STEPS, []).append(float(row["env/return"]))
    curve = [[number * CURVE_STEPS, round(statistics.mean(values), 1)] for number, values in bins.items()]
    return {
        "task": job.task,
        "seed": job.seed,
        "steps": steps,
        "train_seconds": round(seconds, 1),
        "wall_s": round(job.wall_s, 1),
        "evaluation": evaluation,
        "curve": curve,
        "words": job.words,
    }


def learn(jobs: list[Job], *, at_once: int, seconds: float, out: Path) -> None:
    """Run the jobs, longest first, until all are done or the time is over."""
    end = time.monotonic() + seconds
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, stop)
    waiting, running, told = list(jobs), [], False
    while (waiting and not stopped) or running:
        stopped = stopped or time.monotonic() > end - EVALUATION_S
        if stopped and not told:
            told = True
            print(f"stopping {len(running)} runs; {len(waiting)} did not start", flush=True)
            for job in running:
                if not job.evaluating and job.process:
                    job.process.send_signal(signal.SIGINT)
        free = at_once - sum(job.cores for job in running)
        while waiting and not stopped and (waiting[0].cores <= free or not running):
            running.append(waiting.pop(0))
            running[-1].train()
            free -= running[-1].cores
        time.sleep(0.1)
        for job in list(running):
            assert job.process is not None
            if time.monotonic() > end:
                job.process.kill()
            if job.process.poll() is not None and finish(job, out):
                running.remove(job)


def finish(job: Job, out: Path) -> bool:
    """A process of the job ended: start its evaluation, or write its line. True: nothing is left to do."""
    assert job.process is not None
    if not job.evaluating:
        if any((job.folder / "checkpoints").glob("step_*")):
            job.evaluate()
            return False
        print(f"{job.folder.name}: nothing learnt (exit code {job.process.returncode}); see {job.folder}.err")
        return True
    output = job.process.stdout.read() if job.process.stdout else ""
    line = result(job, json.loads(output) if job.process.returncode == 0 else None)
    with open(out / "results.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")
    score = line["evaluation"]["mean"] if line["evaluation"] else float("nan")
    print(
        f"{job.folder.name}: {line['steps']} steps, {line['train_seconds']:.0f} s, return {score:.1f}",
        flush=True,
    )
    return True


def table(out: Path, steps: int) -> str:
    """Mean ± standard deviation over seeds of the evaluations, of runs that reached `steps`."""
    newest = {(line["task"], line["seed"]): line for line in read_rows(out / "results.jsonl")}
    lines = [
        "| task | seeds | steps | return | least … most | training s (steps/s) | CleanRL's PPO, Tianshou's |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in PUBLISHED:
        runs = [line for (name, _), line in newest.items() if name == task and line["evaluation"]]
        whole = [line for line in runs if line["steps"] >= steps]
        for group in (whole, [line for line in runs if line not in whole]):
            if not group:
                continue
            scores = [line["evaluation"]["mean"] for line in group]
            spent = statistics.mean(line["train_seconds"] for line in group)
            reached = min(line["steps"] for line in group)
            spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
            lines.append(
                f"| {task} | {len(group)} | {reached} | {statistics.mean(scores):.0f} ± {spread:.0f} | "
                f"{min(scores):.0f} … {max(scores):.0f} | {spent:.0f} ({reached / max(spent, 1e-9):.0f}) | "
                f"{PUBLISHED[task].replace(' | ', ', ')} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="What robots learn, beside published scores.")
    parser.add_argument(
        "--tasks", nargs="+", default=["half_cheetah", "hopper", "walker2d", "ant"], choices=sorted(PUBLISHED)
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="cores to run on")
    parser.add_argument("--seconds", type=float, default=86400.0, help="time limit, evaluations included")
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--out", type=Path, default=Path("learnt"))
    parser.add_argument("--table", action="store_true", help="only print what is there")
    parser.add_argument("--evaluate", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help="key=value for every run")
    given = parser.parse_args()
    if given.evaluate:
        print(json.dumps(evaluate(given.evaluate, given.episodes)))
        return
    if not given.table:
        folder = given.out / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        common = [
            "hardware=cpu",
            f"trainer.total_timesteps={given.steps}",
            "trainer.torch_threads=1",
            "run.dashboard=none",
            "run.tensorboard=false",
            "run.keep_checkpoints=1",
            *given.words,
        ]
        order = sorted(given.tasks, key=lambda task: [*LONGEST_FIRST, task].index(task))
        jobs = [
            Job(task, seed, folder / f"{task}-{seed}", common, given.episodes)
            for task in order
            for seed in range(given.first_seed, given.first_seed + given.seeds)
        ]
        learn(jobs, at_once=given.jobs, seconds=given.seconds, out=given.out)
    print(table(given.out, given.steps))


if __name__ == "__main__":
    main()
