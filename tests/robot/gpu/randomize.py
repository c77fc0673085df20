"""Shows what domain randomisation costs on this GPU, and what it gains where links are heavier than in training.

    python -m tests.robot.gpu.randomize --robots hopper walker2d humanoid --minutes 1.3 --per-gpu 3 --out randomized
    python -m tests.robot.gpu.randomize --no-cost --device cpu --robots hopper --minutes 10 --out randomized

Cost: steps a second of 4096 robots with random actions, all in this process, for several settings, in turns. Before it,
each world's own masses are compared with MuJoCo's own mj_setConst.
Gain: each robot is trained twice, without and with RANGES, for --minutes from typing; then both policies play
--episodes on the CPU with the most likely actions, on seeds from 100 on, at each factor of --factors on all masses and
inertias. Prints a table; OUT/results.jsonl has the numbers.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.robot.gpu.lift import Job
from tests.robot.gpu.runs import finished, gpus, rows_of

RANGES = {"mass": [0.8, 1.4]}
COSTS: dict[str, dict[str, Any]] = {
    "off": {},
    "masses": {"mass": [0.8, 1.4], "link_mass": [0.9, 1.1]},
    "friction and strength": {"friction": [0.5, 1.5], "strength": [0.8, 1.2]},
    "latency, noise, pushes": {"latency": [0, 2], "noise": 0.01, "push": 0.5},
    "all": {
        "mass": [0.8, 1.4],
        "link_mass": [0.9, 1.1],
        "friction": [0.5, 1.5],
        "strength": [0.8, 1.2],
        "latency": [0, 2],
        "noise": 0.01,
        "push": 0.5,
    },
}
ENVS, WARM, STEPS, ROUNDS = 4096, 8, 40, 3


def words_of(ranges: dict[str, Any]) -> list[str]:
    """Returns the ranges as arguments."""
    return [
        f"env.params.randomize.{name}={value}".replace(" ", "") for name, value in ranges.items() if value
    ]


def cost(robot: str, preset: str) -> None:
    """Prints steps a second of each setting: the median of ROUNDS."""
    import torch

    from metta_fast.buffers.rollout import Buffers
    from metta_fast.envs.robot.env import RobotFactory

    device = torch.device("cuda", 0)
    made, rates = {}, {name: [] for name in COSTS}
    for name, ranges in COSTS.items():
        factory = RobotFactory(robot, preset=preset, randomize=ranges)
        vec = factory.make_device_vector(ENVS, device, 0, ENVS)
        buffers = Buffers.allocate(
            vec.spec, num_agents=ENVS, horizon=8, bptt_horizon=8, state_shape=(0, 0), device=device
        )
        vec.attach(buffers)
        vec.async_reset(3)
        made[name] = vec, buffers
        if name == "all":
            check(factory, vec)
    for _ in range(ROUNDS):
        for name, (vec, buffers) in made.items():
            for t in range(WARM + STEPS):
                if t == WARM:
                    torch.cuda.synchronize()
                    begun = time.perf_counter()
                buffers.given_actions(t % 8).uniform_(-1, 1)
                vec.step_row(t % 8)
            torch.cuda.synchronize()
            rates[name].append(ENVS * STEPS / (time.perf_counter() - begun))
    off = float(np.median(rates["off"]))
    for name, found in rates.items():
        rate = float(np.median(found))
        print(
            f"{robot} {preset}, {ENVS} robots, {name}: {rate / 1e3:.1f}k steps/s ({rate / off:.3f} of off)",
            flush=True,
        )


def check(factory: Any, vec: Any) -> None:
    """Compares some worlds' models with MuJoCo's own, changed by hand."""
    from tests.robot.randomized import Draws, changed_model

    worst = {}
    for i in (0, 1, 4095):
        model = changed_model(factory.model.path, Draws(3, i, 0), factory.randomize.given())
        for name, worlds in vec.physics.own.items():
            expected, found = getattr(model, name), worlds[i].cpu().numpy()
            scale = np.abs(expected).max() or 1.0
            worst[name] = max(worst.get(name, 0.0), float(np.abs(found - expected).max() / scale))
    print(
        f"{factory.task.name}: greatest relative error of a world's model: "
        + ", ".join(f"{name} {error:.1e}" for name, error in worst.items()),
        flush=True,
    )


def played(job: tuple[str, float, int]) -> tuple[tuple[str, float, int], dict[str, float]]:
    """Plays a run's policy with all masses and inertias times a factor. Returns the job too."""
    import torch

    import metta_fast

    torch.set_num_threads(1)
    run, factor, episodes = job
    found = metta_fast.evaluate(
        run,
        episodes=episodes,
        seed=100,
        deterministic=True,
        device="cpu",
        changes={"env.params.randomize": {"mass": factor}},
    )
    return job, found


def gain(given: argparse.Namespace) -> None:
    """Trains the pairs of policies, then plays them."""
    (given.out / "runs").mkdir(parents=True, exist_ok=True)
    preset = [] if given.device == "cpu" else [f"env.params.preset={given.preset}"]
    keys = [*preset, "run.checkpoint_interval=0", *given.keys]
    waiting = [
        Job(
            given.out / "runs" / f"{robot}-{name}-{seed}",
            robot,
            seed,
            [*keys, *words],
            60 * given.minutes,
            "cuda",
        )
        for seed in given.seeds
        for robot in given.robots
        for name, words in (("plain", []), ("random", words_of(RANGES)))
    ]
    places = [""] * given.per_gpu if given.device == "cpu" else gpus() * given.per_gpu
    done = []
    for job in finished(waiting, places):
        done.append(job)
        last = (rows_of(job.folder) or [{}])[-1]
        rate = last.get("perf/steps_per_second_mean", 0)
        reached = f"{last.get('train/steps')} steps, {rate:.0f} a second, return {last.get('env/return')}"
        print(f"{job.folder.name}: {reached}", flush=True)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    nearest = sorted(given.factors, key=lambda factor: (factor not in (1.0, 1.2), factor))
    todo = [(str(job.folder), factor, given.episodes) for factor in nearest for job in done]
    cells = {}
    with (
        multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool,
        open(given.out / "results.jsonl", "a") as file,
    ):
        for (run, factor, _), found in pool.imap_unordered(played, todo):
            text = f"{found['return']:.0f} ± {found['return_error']:.0f} ({found['length']:.0f} steps)"
            cells[run, factor] = text
            print(f"{Path(run).name}, masses × {factor:g}: {text}", flush=True)
            file.write(json.dumps({"run": run, "factor": factor, **found}) + "\n")
            file.flush()
    print("| run | " + " | ".join(f"masses × {factor:g}" for factor in given.factors) + " |")
    print("|---" * (1 + len(given.factors)) + "|")
    for job in sorted(done, key=lambda job: job.folder.name):
        row = [cells[str(job.folder), factor] for factor in given.factors]
        print(f"| {job.folder.name} | " + " | ".join(row) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost and gain of domain randomisation.")
    parser.add_argument("--robots", nargs="+", default=["hopper", "walker2d"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--no-cost", action="store_true", help="leave the cost out")
    parser.add_argument("--no-gain", action="store_true", help="leave the training out")
    parser.add_argument("--cost", nargs="+", default=["ant", "hopper"], help="robots whose cost is measured")
    parser.add_argument("--per-gpu", type=int, default=2, help="runs at once on a GPU")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each run, from typing")
    parser.add_argument("--factors", nargs="+", type=float, default=[0.8, 1.0, 1.2])
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("randomized"))
    parser.add_argument("keys", nargs="*", help="key=value for every run")
    given = parser.parse_args()
    if not given.no_cost and given.device == "cuda":
        for robot in given.cost:
            cost(robot, given.preset)
    if not given.no_gain:
        gain(given)


if __name__ == "__main__":
    main()
