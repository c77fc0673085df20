"""Evaluates a robot's policy by Gymnasium itself, on the CPU: gymnasium.make("Ant-v5"), its own physics and reset.

    python -m tests.robot.gpu.evaluation runs/ant --episodes 32 --seed 100 --processes 8

Prints one JSON object: mean, standard deviation and length of the episodes with the most likely actions, and with
sampled ones. Episode i begins with env.reset(seed=SEED + i). The run's options of the task are Gymnasium's too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MODES = {"likely": True, "sampled": False}
"""Name → LoadedPolicy's `deterministic`."""
OURS = ("task", "preset", "njmax", "nconmax", "on_unstable", "privileged", "randomize")
"""Options of env.params that Gymnasium does not have."""


class Part(NamedTuple):
    """Some of the episodes, for one process."""

    run: str
    deterministic: bool
    seeds: range
    options: dict[str, Any]
    """Keyword arguments of gymnasium.make."""


def gymnasium_options(run: str) -> dict[str, Any]:
    """Returns the arguments of gymnasium.make for the task of a run."""
    from metta_fast.envs import make_factory
    from metta_fast.inference.evaluate import load_run

    config = load_run(run, best=False, device="cpu")[0]
    options = {name: value for name, value in config.env.params.items() if name not in OURS}
    factory: Any = make_factory(config.env)
    if not (name := factory.gymnasium_id()):
        raise SystemExit(f"{run}: Gymnasium has no {config.env.name}")
    return {"id": name, "max_episode_steps": config.env.max_steps, **options}


def play(part: Part) -> list[tuple[float, int]]:
    """Returns (return, length) of each episode."""
    import gymnasium
    import torch

    import metta_fast

    torch.set_num_threads(1)
    policy = metta_fast.load_policy(
        part.run, deterministic=part.deterministic, seed=part.seeds.start, device="cpu"
    )
    envs = [gymnasium.make(**part.options) for _ in part.seeds]
    obs = np.stack([env.reset(seed=seed)[0] for env, seed in zip(envs, part.seeds)]).astype(np.float32)
    returns, lengths, live = np.zeros(len(envs)), np.zeros(len(envs), int), np.ones(len(envs), bool)
    while live.any():
        actions = policy.act(obs)
        for i in np.flatnonzero(live):
            seen, reward, terminal, truncation, _ = envs[i].step(actions[i])
            obs[i] = seen
            returns[i] += float(reward)
            lengths[i] += 1
            live[i] = not (terminal or truncation)
    for env in envs:
        env.close()
    return list(zip(returns.tolist(), lengths.tolist()))


def evaluate(run: str, *, episodes: int, seed: int, processes: int) -> dict[str, Any]:
    """Returns the figures of each mode; episodes are shared among processes."""
    options = gymnasium_options(run)
    each = -(-episodes // processes)
    starts = range(seed, seed + episodes, each)
    parts = [
        Part(run, likely, range(start, min(start + each, seed + episodes)), options)
        for likely in MODES.values()
        for start in starts
    ]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        found = pool.map(play, parts, chunksize=1)
    figures: dict[str, Any] = {"episodes": episodes, "seed": seed, "env": options["id"]}
    for number, name in enumerate(MODES):
        rows = [row for part in found[number * len(starts) : (number + 1) * len(starts)] for row in part]
        returns, lengths = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
        figures[name] = {
            "mean": round(float(returns.mean()), 1),
            "std": round(float(returns.std(ddof=1)) if len(rows) > 1 else 0.0, 1),
            "least": round(float(returns.min()), 1),
            "length": round(float(lengths.mean()), 1),
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluates a robot's policy by Gymnasium, on the CPU.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    processes = max(1, min(given.processes, given.episodes))
    print(json.dumps(evaluate(str(given.run), episodes=given.episodes, seed=given.seed, processes=processes)))


if __name__ == "__main__":
    main()
