"""Measures what a feature costs: seconds of an epoch's update with and without it, in turns.

    python -m tests.features.cost                  # on the CPU, a thread
    python -m tests.features.cost --device cuda

Prints for each core a row per feature: the median seconds of an update, and its ratio to the bare learner's.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import torch

from metta_fast.config.keys import PolicyConfig
from metta_fast.envs.counter import CounterFactory
from metta_fast.features import kickstart, make_features
from metta_fast.policy import make_policy
from tests.ppo.stand_in import make_ppo

FEATURES = ("bare", "reward_centering", "contrastive", "kickstart")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for core in ("none", "mingru"):
        updates = {name: made(name, core, asked.device) for name in FEATURES}
        times: dict[str, list[float]] = {name: [] for name in FEATURES}
        for number in range(asked.rounds + 2):
            for name, ppo in updates.items():
                ppo.collect()
                begin = time.perf_counter()
                ppo.update()
                if number > 1:
                    times[name].append(time.perf_counter() - begin)
        bare = statistics.median(times["bare"])
        for name in FEATURES:
            mean = statistics.median(times[name])
            print(f"core={core:7} {name:17} {mean * 1e3:8.1f} ms  {mean / bare:5.2f}", flush=True)
        for ppo in updates.values():
            ppo.rollout.vec.close()


def made(name: str, core: str, device: str) -> Any:
    """Returns a PPO of 256 agents, 16384 rows and width 128."""
    factory = CounterFactory()

    def policy() -> Any:
        torch.manual_seed(0)
        return make_policy(PolicyConfig(core=core), factory.spec)

    kickstart.load_teacher = lambda _, built: policy().to(built.device).eval().requires_grad_(False)  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        given = {"teachers": folder, "until": 1} if name == "kickstart" else True
        hooks = make_features({} if name == "bare" else {name: given})
    keys: Any = {"total_timesteps": 10**9, "cuda_graphs": device == "cuda"}
    return make_ppo(
        factory, 256, horizon=64, bptt=32, minibatches=4, policy=policy(), hooks=hooks, device=device, **keys
    )


if __name__ == "__main__":
    main()
