"""Trains the tasks of tests/learn/tasks.py by the defaults, with Stable-Baselines3's beside them, and prints the table.

    python -m tests.learn.defaults                          # all tasks, five seeds, peers' three; hours on two cores
    python -m tests.learn.defaults --task bandit --seeds 2 --peer-seeds 0
    python -m tests.learn.defaults --lanes 16               # 16 trainings at a time, each on two cores of its own

Ours is the command `metta-fast train env=… trainer.total_timesteps=…` (and policy=… for the cue); nothing else that
bears on learning is typed. Its peer is PPO, or for the cue sb3-contrib's RecurrentPPO, with its own defaults on as many
steps. Both are timed as whole processes, and play 100 episodes with the most likely action, on seeds from 100 on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue
from statistics import median

from tests.learn.tasks import TASKS, Task

CORES = 2
"""Cores of each training."""
EPISODES, FIRST_SEED = 100, 100
"""Evaluation episodes, and the seed of the first."""


@dataclass(frozen=True)
class Score:
    """The result of one training."""

    task: str
    player: str
    """metta_fast or stable-baselines3."""
    seed: int
    score: float
    """Mean return of the evaluation episodes."""
    seconds: float
    """From the start of the process until the policy is saved."""


def main() -> int:
    given = _arguments()
    tasks = [task for task in TASKS if not given.task or task.name in given.task]
    jobs = [(task, "metta_fast", seed) for task in tasks for seed in range(given.seeds)]
    peers = dict.fromkeys(_peer_task(task) for task in tasks)
    jobs += [(task, "stable-baselines3", seed) for task in peers for seed in range(given.peer_seeds)]
    # The longest first: peers' before ours, recurrent ones before others.
    jobs.sort(key=lambda job: (job[1] == "metta_fast", job[0].policy is None, -job[0].steps))
    lanes: Queue[list[int]] = Queue()
    cores = sorted(os.sched_getaffinity(0))
    for i in range(given.lanes):
        lanes.put(cores[i * CORES : (i + 1) * CORES] or cores)
    end = time.monotonic() + given.minutes * 60
    scores: list[Score] = []

    def work(job: tuple[Task, str, int]) -> None:
        lane = lanes.get()
        try:
            if time.monotonic() < end:
                scores.append(measure(*job, lane, end))
                print(json.dumps(asdict(scores[-1])), flush=True)
        except (subprocess.SubprocessError, ValueError) as error:
            print(f"{job[0].name}, {job[1]}, seed {job[2]}: {error}", file=sys.stderr, flush=True)
        finally:
            lanes.put(lane)

    with ThreadPoolExecutor(given.lanes) as pool:
        list(pool.map(work, jobs))
    text = table(tasks, scores)
    print(text)
    if given.out:
        Path(given.out).write_text(text + "\n", encoding="utf-8")
    return 0


def measure(task: Task, player: str, seed: int, cores: Iterable[int], end: float) -> Score:
    """Trains once on these cores and plays the evaluation episodes."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        if player == "metta_fast":
            run = Path(folder) / "run"
            words = [f"env={task.env}", f"trainer.total_timesteps={task.steps}"]
            words += [f"policy={task.policy}"] if task.policy else []
            words += [f"seed={seed}", f"run.dir={folder}", "run.name=run"]
            _run(["-m", "metta_fast", "train", *words], cores, end)
            seconds = time.monotonic() - start
            given = ["--episodes", str(EPISODES), "--seed", str(FIRST_SEED), "--deterministic", "--json"]
            printed = _run(["-m", "metta_fast", "eval", str(run), *given], cores, end)
            score = json.loads(printed)["players"]["policy"]["return"]
        else:
            given = [task.env, str(task.steps), str(seed), "recurrent" if task.policy else "plain"]
            printed = _run(["-m", "tests.learn.peer", *given], cores, end)
            result = json.loads(printed.splitlines()[-1])
            score, seconds = result["score"], result["seconds"]
    return Score(task.name, player, seed, score, seconds)


def _run(words: list[str], cores: Iterable[int], end: float) -> str:
    """Runs python with these words and returns what it printed."""
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=max(1.0, end - time.monotonic()),
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    if done.returncode:
        raise ValueError(f"exit code {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def _peer_task(task: Task) -> Task:
    """Returns the task under which the peer's trainings stand: it has no choice of a memory, and trains each once."""
    return next((other for other in TASKS if (other.env, other.steps) == (task.env, task.steps)), task)


def table(tasks: Iterable[Task], scores: Iterable[Score]) -> str:
    """Returns the table in Markdown: medians over seeds, the lowest and highest score, median seconds."""
    lines = [
        "| task | steps | floor | goal | metta_fast | Stable-Baselines3 | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in tasks:
        cells, times = [], []
        for player in ("metta_fast", "stable-baselines3"):
            name = task.name if player == "metta_fast" else _peer_task(task).name
            own = [score for score in scores if (score.task, score.player) == (name, player)]
            if not own:
                cells.append("—")
                times.append("—")
                continue
            points = sorted(score.score for score in own)
            cells.append(f"{median(points):.4g} ({points[0]:.4g} … {points[-1]:.4g}; {len(points)} seeds)")
            times.append(f"{median(score.seconds for score in own):.0f}")
        floor = "as SB3" if task.floor is None else f"{task.floor:g}"
        lines.append(
            f"| {task.name} | {task.steps:,} | {floor} | {task.goal:g} | {cells[0]} | {cells[1]} "
            f"| {times[0]}, {times[1]} |"
        )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    found = argparse.ArgumentParser(
        prog="python -m tests.learn.defaults", description=__doc__.splitlines()[0]
    )
    names = [task.name for task in TASKS]
    found.add_argument("--task", action="append", choices=names, help="only this task; may be repeated")
    found.add_argument("--seeds", type=int, default=5, help="our trainings of each task (default: 5)")
    found.add_argument("--peer-seeds", type=int, default=3, help="Stable-Baselines3's (default: 3)")
    found.add_argument("--lanes", type=int, default=1, help="trainings at a time (default: 1)")
    found.add_argument("--minutes", type=float, default=600, help="stop after this time (default: 600)")
    found.add_argument("--out", help="write the table to this file")
    return found.parse_args()


if __name__ == "__main__":
    sys.exit(main())
