"""Trains robots on all GPUs of this machine and evaluates each policy by Gymnasium on the CPU.

    python -m tests.robot.gpu.learn --robots ant humanoid --seeds 1 2 3 --minutes 1.5 --out learnt
    python -m tests.robot.gpu.learn --robots hopper --presets exact fast --per-gpu 2 --out tried \
        --setting short "trainer.batch_size=32768" --setting far "trainer.gamma=0.997" --until hopper=2
    python -m tests.robot.gpu.learn --out learnt --table                 # the table of what is there

A run is `metta-fast train env=ROBOT env.device=cuda env.params.preset=PRESET seed=SEED` with the recipe's values, those
of its setting and the words at the end. Runs wait in a queue for a place on a GPU (--alone: for a whole one). After
--minutes from typing a run gets Ctrl-C: it saves and ends. Then evaluation.py plays its policy. OUT/results.jsonl has a
line for each run, with its learning curve; OUT/runs/NAME is its folder.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metta_fast.metrics.loggers import read_rows
from tests.robot.gpu.runs import gpus, rows_of

ROBOTS = ("ant", "half_cheetah", "hopper", "walker2d", "humanoid")
LEVELS = {"ant": 6000, "humanoid": 5000, "half_cheetah": 6000, "hopper": 3000, "walker2d": 4000}
"""Mean training returns whose first time is shown."""
SMOOTH = 5
"""Rows of metrics that are averaged for that."""
POINTS = 150
"""At most so many points of a curve are kept."""
SAVING_S = 20.0
"""After so long from Ctrl-C a run is killed."""


@dataclass
class Job:
    """A run and what is happening to it."""

    robot: str
    preset: str
    seed: int
    setting: str
    folder: Path
    words: list[str]
    limit_s: float
    place: str = ""
    slots: int = 1
    alone: bool = False
    """It has a GPU to itself, whatever --per-gpu says."""
    process: subprocess.Popen[str] | None = None
    begun: float = 0.0
    wall_s: float = 0.0
    offset: float | None = None
    """Seconds from typing to the trainer's own zero."""
    asked: bool = False
    evaluating: bool = False
    problem: str = ""
    evaluation: dict[str, Any] = field(default_factory=dict)

    def start(self, words: list[str], **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdout=subprocess.PIPE if self.evaluating else subprocess.DEVNULL,
            stderr=open(f"{self.folder}.err", "a"),  # noqa: SIM115
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        )

    def train(self, place: str, common: list[str]) -> None:
        """Starts the run on a GPU; "": on the CPU."""
        self.place, self.begun = place, time.monotonic()
        here = [f"run.dir={self.folder.parent}", f"run.name={self.folder.name}", f"seed={self.seed}"]
        where = [f"env.params.preset={self.preset}", "env.device=cuda"] if place else ["hardware=cpu"]
        words = ["metta_fast", "train", f"env={self.robot}", *where, *here, *common, *self.words]
        self.start(words, **({"CUDA_VISIBLE_DEVICES": place} if place else {}))

    def watch(self) -> None:
        """Finds when the trainer began, and ends the run at its limit."""
        assert self.process is not None
        now = time.monotonic()
        if self.offset is None and (first := next(iter(rows_of(self.folder)), None)) is not None:
            self.offset = now - self.begun - first["train/seconds"]
        if now > self.begun + self.limit_s and not self.asked:
            self.asked = True
            self.process.send_signal(signal.SIGINT)
        elif now > self.begun + self.limit_s + SAVING_S:
            self.process.kill()

    def evaluate(self, episodes: int, processes: int) -> None:
        self.wall_s, self.evaluating = time.monotonic() - self.begun, True
        where = [str(self.folder), "--episodes", str(episodes), "--processes", str(processes)]
        self.start(["tests.robot.gpu.evaluation", *where], CUDA_VISIBLE_DEVICES="")


def result(job: Job) -> dict[str, Any]:
    """Returns a line of results.jsonl."""
    rows, offset = rows_of(job.folder), job.offset or 0.0
    curve = [
        [round(row["train/seconds"] + offset, 1), int(row["train/steps"]), round(float(row["env/return"]), 1)]
        for row in rows
        if row.get("env/return") is not None
    ]
    times = rows[-1]["train/seconds"] - rows[0]["train/seconds"] if len(rows) > 1 else 0.0
    rate = (rows[-1]["train/steps"] - rows[0]["train/steps"]) / times if times else 0.0
    level = LEVELS.get(job.robot)
    kept = curve[:: max(1, len(curve) // POINTS)]
    return {
        "robot": job.robot,
        "preset": job.preset,
        "seed": job.seed,
        "setting": job.setting,
        "words": job.words,
        "alone": job.alone,
        "steps": int(rows[-1]["train/steps"]) if rows else 0,
        "wall_s": round(job.wall_s, 1),
        "before_training_s": round(offset, 1),
        "steps_per_s": round(rate),
        "level": level,
        "level_s": first_time(curve, level) if level else None,
        "warnings": max((row.get("env/warnings") or 0.0 for row in rows), default=0.0),
        "evaluation": job.evaluation,
        "problem": job.problem,
        "curve": kept,
    }


def first_time(curve: list[list[float]], level: float) -> float | None:
    """Returns the seconds from typing at which the mean of SMOOTH points first reached the level."""
    for end in range(SMOOTH, len(curve) + 1):
        if sum(point[2] for point in curve[end - SMOOTH : end]) >= level * SMOOTH:
            return curve[end - 1][0]
    return None


def learn(jobs: list[Job], places: list[str], given: argparse.Namespace, common: list[str]) -> None:
    """Runs the jobs until all are evaluated or the time is over: each on the first GPU with room for it."""
    end, waiting = time.monotonic() + given.seconds, list(jobs)
    free = Counter(places)
    whole = dict(free)
    running: list[Job] = []
    processes = given.processes or max(1, len(os.sched_getaffinity(0)) // (2 * len(places)))
    while waiting or running:
        if waiting and time.monotonic() + 20 > end:
            print(f"{len(waiting)} runs did not start: --seconds {given.seconds:g} is over", flush=True)
            waiting = []
        for job in list(waiting):
            need = {place: whole[place] if job.alone else 1 for place in free}
            place = next((place for place, slots in free.items() if slots >= need[place]), None)
            if place is None:
                break
            waiting.remove(job)
            running.append(job)
            free[place] -= need[place]
            job.slots = need[place]
            job.limit_s = min(job.limit_s, end - time.monotonic() - given.evaluation_s)
            job.train(place, common)
        time.sleep(0.1)
        for job in list(running):
            assert job.process is not None
            if not job.evaluating:
                job.watch()
            if job.process.poll() is None:
                if time.monotonic() > end:
                    job.process.kill()
                continue
            if not job.evaluating:
                free[job.place] += job.slots
                if any((job.folder / "checkpoints").glob("step_*")):
                    job.evaluate(given.episodes, processes)
                    continue
                job.problem = f"nothing learnt (exit code {job.process.returncode}); see {job.folder}.err"
            else:
                text = job.process.stdout.read() if job.process.stdout else ""
                if job.process.returncode == 0:
                    job.evaluation = json.loads(text)
                else:
                    job.problem = f"not evaluated (exit code {job.process.returncode}); see {job.folder}.err"
            running.remove(job)
            write(job, given.out)


def write(job: Job, out: Path) -> None:
    line = result(job)
    with open(out / "results.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")
    print(f"{job.folder.name}: {job.problem or in_short(line)}", flush=True)


def in_short(line: dict[str, Any]) -> str:
    shown = {mode: line["evaluation"][mode] for mode in ("likely", "sampled")}
    scores = ", ".join(f"{mode} {one['mean']:.0f} ± {one['std']:.0f}" for mode, one in shown.items())
    return f"{line['steps'] / 1e6:.1f}M steps in {line['wall_s']:.0f} s ({line['steps_per_s']} a second), {scores}"


def table(out: Path) -> str:
    """Returns the runs of results.jsonl, the newest of each name."""
    lines = {
        tuple(row[key] for key in ("robot", "preset", "setting", "seed")): row
        for row in read_rows(out / "results.jsonl")
    }
    text = [
        "| robot | preset | setting | seed | M steps | s from typing (before training) | k steps/s "
        "| most likely actions | sampled | training return reached | steps/episode | warnings |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(lines.values(), key=lambda row: ROBOTS.index(row["robot"])):
        scores = ["–", "–"]
        length = "–"
        if found := row["evaluation"]:
            scores = [
                f"{found[mode]['mean']:.0f} ± {found[mode]['std']:.0f}" for mode in ("likely", "sampled")
            ]
            length = f"{found['sampled']['length']:.0f}"
        reached = f"{row['level']} at {row['level_s']:.0f} s" if row["level_s"] else f"{row['level']}: no"
        cells = [row["robot"], row["preset"], row["setting"], row["seed"], f"{row['steps'] / 1e6:.1f}"]
        shared = "" if row["alone"] else ", GPU shared"
        cells += [
            f"{row['wall_s']:.0f} ({row['before_training_s']:.0f}){shared}",
            f"{row['steps_per_s'] / 1e3:.0f}",
        ]
        text.append(
            "| " + " | ".join(map(str, [*cells, *scores, reached, length, f"{row['warnings']:.2g}"])) + " |"
        )
    return "\n".join(text)


def pack(out: Path) -> None:
    """Writes OUT/policies.tar.xz with the run of each robot whose sampled actions scored best, without the
    environments' state."""
    best: dict[str, tuple[float, str]] = {}
    for row in read_rows(out / "results.jsonl"):
        if row["evaluation"]:
            name = "-".join(str(row[key]) for key in ("robot", "preset", "setting", "seed"))
            found = row["evaluation"]["sampled"]["mean"], name
            best[row["robot"]] = max(best.get(row["robot"], found), found)
    with tarfile.open(out / "policies.tar.xz", "w:xz", preset=3) as tar:
        for _, name in best.values():
            folder = out / "runs" / name
            for manifest in (folder / "checkpoints").glob("step_*/manifest.json"):
                content = json.loads(manifest.read_text())
                content["files"].pop("env.pt", None)
                manifest.write_text(json.dumps(content))
                (manifest.parent / "env.pt").unlink(missing_ok=True)
            tar.add(folder, name)


def main() -> None:
    parser = argparse.ArgumentParser(description="What robots learn on the GPU, evaluated by Gymnasium.")
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=ROBOTS)
    parser.add_argument("--seeds", nargs="+", default=["0"], help="SEED, or ROBOT:SEED for one robot")
    parser.add_argument("--presets", nargs="+", default=["exact"], choices=["exact", "fast", "loose"])
    parser.add_argument("--per-gpu", type=int, default=1, help="runs at once on a GPU")
    parser.add_argument("--alone", nargs="+", default=[], help="ROBOT or ROBOT:SEED: with a GPU to itself")
    parser.add_argument("--processes", type=int, default=0, help="of each evaluation")
    parser.add_argument(
        "--pack", action="store_true", help="write OUT/policies.tar.xz: each robot's best run"
    )
    parser.add_argument("--minutes", type=float, default=1.5, help="of each run, from typing")
    parser.add_argument("--until", nargs="+", default=[], metavar="ROBOT=MINUTES", help="of one robot")
    parser.add_argument("--words", nargs=2, action="append", default=[], metavar=("ROBOT", "WORDS"))
    parser.add_argument(
        "--setting",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "WORDS"),
        help="key=value words to try; ROBOT:NAME for one robot. None: the recipe's values",
    )
    parser.add_argument("--seconds", type=float, default=86400.0, help="time limit, evaluations included")
    parser.add_argument("--evaluation-s", type=float, default=25.0, help="kept of it for evaluations")
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--out", type=Path, default=Path("learnt"))
    parser.add_argument("--table", action="store_true", help="only print what is there")
    parser.add_argument("keys", nargs="*", help="key=value for every run")
    given = parser.parse_args()
    if not given.table:
        (given.out / "runs").mkdir(parents=True, exist_ok=True)
        places = gpus() * given.per_gpu or [""]
        common = ["run.dashboard=none", "run.tensorboard=false", "run.keep_checkpoints=1", *given.keys]
        jobs = sorted(planned(given), key=lambda job: not job.alone)
        learn(jobs, places, given, common)
    if given.pack:
        pack(given.out)
    print(table(given.out))


def planned(given: argparse.Namespace) -> list[Job]:
    """Returns the runs: for each seed and preset, all robots with each of their settings."""
    minutes = {robot: float(value) for robot, value in (word.split("=") for word in given.until)}
    own: dict[str, list[str]] = {robot: [] for robot in given.robots}
    for robot, words in given.words:
        own.setdefault(robot, []).extend(words.split())
    jobs = []
    for which in given.seeds:
        only, _, seed = which.rpartition(":")
        for preset in given.presets:
            for robot in [robot for robot in given.robots if only in ("", robot)]:
                settings = [
                    (name.rpartition(":")[2], words.split())
                    for name, words in given.setting
                    if name.rpartition(":")[0] in ("", robot)
                ]
                for setting, words in settings or [("recipe", [])]:
                    folder = given.out / "runs" / f"{robot}-{preset}-{setting}-{seed}"
                    limit = 60 * minutes.get(robot, given.minutes)
                    job = Job(robot, preset, int(seed), setting, folder, own[robot] + words, limit)
                    job.alone = given.per_gpu == 1 or not {robot, f"{robot}:{seed}"}.isdisjoint(given.alone)
                    jobs.append(job)
    return jobs


if __name__ == "__main__":
    main()
