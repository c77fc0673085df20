"""Compares SAC's speed with that of Stable-Baselines3 and skrl, in turns in one process.

    python -m tests.sac.speed                                            # HalfCheetah on the CPU, one environment
    python -m tests.sac.speed --device cuda --parts updates --peers sb3 skrl
    python -m tests.sac.speed --setting bf16 "trainer.precision=bf16" --setting plain "trainer.compile=false"

All sides: the same task of Gymnasium (theirs) or ours, one environment, 2×256 relu, batches of 256, an update for each
step, float32 unless a setting says otherwise. `training` counts stepping, acting, storing and learning; `updates` only
the learning. Each round of a side is --seconds long; the ratio is that of a round to the peer's in the same turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

TASK = {"half_cheetah": "HalfCheetah-v5", "ant": "Ant-v5", "hopper": "Hopper-v5", "walker2d": "Walker2d-v5"}
FILL = 2000
"""Steps before the first update."""
WORDS = (
    "hardware=auto", "env.device=cpu", "env.num_envs=1", "algorithm=sac", "algorithm.replay_size=200000",
    f"algorithm.learning_starts={FILL}", "trainer.precision=fp32", "trainer.total_timesteps=1000000000",
    "run.dashboard=none",
)  # fmt: skip


class Side:
    """A trainer. `train()` does some steps with their updates, `learn()` only updates; both return how many."""

    name: str
    threads: int

    def train(self) -> int:
        raise NotImplementedError

    def learn(self) -> int:
        raise NotImplementedError


class Ours(Side):
    def __init__(self, name: str, env: str, device: str, words: list[str]) -> None:
        from metta_fast.resolve.compose import compose
        from metta_fast.resolve.resolve import resolve
        from metta_fast.run.build import build_parts

        resolved = resolve(compose([*WORDS, f"env={env}", f"trainer.device={device}", *words]))
        self.name, self.threads = name, resolved.config.trainer.torch_threads
        parts = build_parts(resolved.config, resolved.factory)
        self.algorithm: Any = parts.algorithm
        while self.algorithm.learner.updates == 0:
            self.train()

    def train(self) -> int:
        before = self.algorithm.steps
        self.algorithm.collect()
        self.algorithm.update()
        return self.algorithm.steps - before

    def learn(self) -> int:

        algorithm = self.algorithm
        count = 8 * algorithm.learner.chunk
        algorithm.epoch += 1
        algorithm.learner.run(count, algorithm._context(), algorithm.steps)
        algorithm.learner.sums.tolist()
        return count


class SB3(Side):
    def __init__(self, env: str, device: str, threads: int) -> None:
        import gymnasium
        from stable_baselines3 import SAC

        torch.set_num_threads(threads)
        self.name, self.threads = f"SB3, {threads} torch threads", threads
        make = gymnasium.make(TASK[env])
        self.model = SAC("MlpPolicy", make, learning_starts=FILL, device=device, buffer_size=200_000, seed=1)
        self.model.learn(FILL + 64)

    def train(self) -> int:
        self.model.learn(64, reset_num_timesteps=False)
        return 64

    def learn(self) -> int:
        self.model.train(gradient_steps=64, batch_size=256)
        return 64


class Skrl(Side):
    """Updates only: skrl's trainers step environments of their own kind."""

    def __init__(self, env: str, device: str, threads: int) -> None:
        import gymnasium
        from skrl.agents.torch.sac import SAC
        from skrl.memories.torch import RandomMemory
        from skrl.models.torch import DeterministicMixin, GaussianMixin, Model
        from torch import nn

        torch.set_num_threads(threads)
        self.name, self.threads = f"skrl, {threads} torch threads", threads
        task = gymnasium.make(TASK[env])
        seen, action = task.observation_space, task.action_space
        n, w = int(np.prod(seen.shape)), int(np.prod(action.shape))

        def layers(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(
                nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)
            )

        spaces = {"observation_space": seen, "action_space": action, "device": device}

        class Actor(GaussianMixin, Model):  # type: ignore[misc, unused-ignore]
            def __init__(self) -> None:
                Model.__init__(self, **spaces)
                GaussianMixin.__init__(self, clip_actions=True)
                self.net = layers(n, 2 * w)

            def compute(self, inputs: Any, role: str = "") -> Any:
                mean, log_std = self.net(inputs["observations"]).chunk(2, -1)
                return torch.tanh(mean), {"log_std": log_std}

        class Critic(DeterministicMixin, Model):  # type: ignore[misc, unused-ignore]
            def __init__(self) -> None:
                Model.__init__(self, **spaces)
                DeterministicMixin.__init__(self)
                self.net = layers(n + w, 1)

            def compute(self, inputs: Any, role: str = "") -> Any:
                return self.net(torch.cat([inputs["observations"], inputs["taken_actions"]], -1)), {}

        critics = ("critic_1", "critic_2", "target_critic_1", "target_critic_2")
        models = {"policy": Actor(), **{name: Critic() for name in critics}}
        for model in models.values():
            model.to(device)
        memory = RandomMemory(memory_size=200_000, num_envs=1, device=device, replacement=True)
        config = {"batch_size": 256, "learning_rate": 3e-4, "experiment": {"write_interval": 0}}
        self.agent = SAC(models=models, memory=memory, cfg=config, **spaces)
        self.agent.init()
        for name, tensor in memory.tensors.items():
            if tensor.is_floating_point():
                tensor.normal_()
            del name
        memory.filled = True

    def learn(self) -> int:
        for _ in range(64):
            self.agent.update(timestep=0, timesteps=1)
        return 64


def rate(
    do: Callable[[], int], seconds: float, wait: Callable[[], None], clock: Callable[[], float]
) -> float:
    """Returns steps or updates a second."""
    wait()
    start, done = clock(), 0
    while clock() - start < seconds:
        done += do()
    wait()
    return done / (clock() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--env", default="half_cheetah", choices=list(TASK))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peers", nargs="+", default=["sb3"], choices=["sb3", "skrl"])
    parser.add_argument(
        "--threads", type=int, nargs="+", default=[], help="of the peers; none: 1 and all cores"
    )
    parser.add_argument(
        "--parts", nargs="+", default=["training", "updates"], choices=["training", "updates"]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--setting", nargs=2, action="append", default=[], metavar=("NAME", "WORDS"))
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="count the process's CPU seconds: for one thread on a busy machine",
    )
    given = parser.parse_args()
    clock = time.process_time if given.cpu_time else time.perf_counter

    cores = len(os.sched_getaffinity(0))
    peers = {"sb3": SB3, "skrl": Skrl}
    threads = given.threads or ([1] if given.device == "cuda" else sorted({1, cores}))
    sides: list[Side] = [
        peers[name](given.env, given.device, count) for name in given.peers for count in threads
    ]
    for name, words in given.setting or [("recipe", "")]:
        sides.append(Ours(f"ours, {name}", given.env, given.device, words.split()))
    wait = torch.cuda.synchronize if given.device == "cuda" else lambda: None
    for part in given.parts:
        do = {"training": Side.train, "updates": Side.learn}[part].__name__
        able = [side for side in sides if part == "updates" or not isinstance(side, Skrl)]
        found: dict[str, list[float]] = {side.name: [] for side in able}
        for number in range(given.rounds + 1):
            for side in able:
                torch.set_num_threads(side.threads)
                one = rate(getattr(side, do), given.seconds if number else 1.0, wait, clock)
                if number:  # the first warms up
                    found[side.name].append(one)
        rivals = [name for name in found if not name.startswith("ours")]
        for name, rates in found.items():
            ratios = [
                f"{statistics.median(a / b for a, b in zip(rates, found[rival])):.2f}× {rival}"
                for rival in rivals
            ]
            rest = f"; {', '.join(ratios)}" if name not in rivals else ""
            shown = f"{statistics.median(rates):.0f}/s ({min(rates):.0f} to {max(rates):.0f})"
            print(f"{given.env} on {given.device}, {part}: {name}: {shown}{rest}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
