"""Trains as a run does, epoch by epoch, for `--gpu` (in a child: child_program.py).

An epoch is collect, update and the copies that a checkpoint would need. As in a run, the host waits once per epoch,
for its metrics. The device is synchronised only before the first and after the last epoch of a round.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

import torch

from metta_fast.algorithms.ppo.ppo import PPO
from metta_fast.machine.nvml import card_of
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.build import build_parts

BURN_IN_EPOCHS, BURN_IN_S = 5, 0.3
"""Least number of burn-in epochs (compile, capture, replay), and seconds of burn-in after them."""
SETTLE_S = 0.1
"""Seconds at the start of a turn that are not counted, while the GPU's clock rises."""
DRIVER_S = 0.3
"""Seconds of training before the driver is polled, so that its samples are of this run only."""
_NEVER = 10**15
"""Steps of the schedule: so many that a benchmark never reaches its end."""


class Training:
    """Builds a run and trains it epoch by epoch."""

    def __init__(self, overrides: list[str]) -> None:
        """Builds the run and burns it in."""
        began = time.perf_counter()
        resolved = resolve(compose([f"trainer.total_timesteps={_NEVER}", *overrides]))
        self.config = resolved.config
        self.notes = [note for note in resolved.notes if not note.startswith("hardware=auto")]
        self.parts = build_parts(self.config, resolved.factory)
        algorithm = self.parts.algorithm
        assert isinstance(algorithm, PPO), f"--gpu measures PPO, not {type(algorithm).__name__}"
        self.algorithm = algorithm
        self.device = self.parts.device
        self._with_env = self.config.trainer.deterministic or self.parts.spec.cheap_state
        self._epochs_for(0.0, least=BURN_IN_EPOCHS)
        self.build_s = time.perf_counter() - began
        self._epochs_for(BURN_IN_S)

    def ready(self) -> dict[str, Any]:
        env, trainer = self.config.env, self.config.trainer
        return {
            "notes": self.notes + self.algorithm.notes,
            "build_s": self.build_s,
            "settings": {
                "num_envs": env.num_envs,
                "agents_per_env": env.agents_per_env,
                "observation": env.observation,
                "env_device": env.device,
                "blocks": self.config.vector.async_factor,
                "batch_size": trainer.batch_size,
                "minibatch_size": trainer.minibatch_size,
                "bptt_horizon": trainer.bptt_horizon,
                "precision": trainer.precision,
                "compile": trainer.compile,
                "compile_mode": trainer.compile_mode,
                "cuda_graphs": trainer.cuda_graphs,
                "policy": self.config.policy.name,
                "core": self.config.policy.core,
            },
        }

    def epoch(self) -> None:
        """Trains one epoch and makes the copies that a checkpoint needs."""
        self.algorithm.collect()
        self.algorithm.update()
        self.algorithm.state_dict()
        if self._with_env:
            self.algorithm.env_state()

    def sync(self) -> float:
        """Waits for the device and returns the time."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def round(self, seconds: float) -> dict[str, Any]:
        """Trains for at least `seconds` seconds.

        Returns:
            Steps per second over all epochs, values of the single epochs (`epoch_ms`, `epoch_steps_per_s`), and
            median milliseconds of each phase (`phases_ms`).
        """
        self._epochs_for(SETTLE_S)
        steps, walls, phases = [self.algorithm.steps], [self.sync()], []
        while len(walls) < 4 or walls[-1] - walls[0] < seconds:
            self.epoch()
            steps.append(self.algorithm.steps)
            walls.append(time.perf_counter())
            phases.append(self.algorithm.timer.phases())
        elapsed = self.sync() - walls[0]
        each = [b - a for a, b in pairwise(walls)]
        return {
            "steps_per_s": (steps[-1] - steps[0]) / elapsed,
            "epochs": len(each),
            "seconds": elapsed,
            "epoch_ms": [1e3 * s for s in each],
            "epoch_steps_per_s": [(b - a) / s for a, b, s in zip(steps, steps[1:], each)],
            "phases_ms": {name: 1e3 * statistics.median(one[name] for one in phases) for name in phases[0]},
        }

    def utilization(self, seconds: float) -> dict[str, Any]:
        """Reads the driver's values over `seconds` seconds of training (0: none), and this process's memory.

        gpu_utilization is percent, or None with the reason in `why`. memory_mib is the most that torch has reserved
        (with the pools of CUDA graphs, without CUDA's context).
        """
        cuda, why, row = self.device.type == "cuda", "", {}
        if seconds and cuda:
            card, why = card_of(self.device)
            if card is not None:
                self._epochs_for(DRIVER_S)
                card.poll()
                self._epochs_for(seconds)
                row = card.poll()
        return {
            "gpu_utilization": row.get("perf/gpu_utilization"),
            "power_w": row.get("perf/gpu_power_w"),
            "clock_sm_mhz": row.get("perf/gpu_clock_sm_mhz"),
            "why": why,
            "memory_mib": torch.cuda.max_memory_reserved(self.device) / 2**20 if cuda else None,
        }

    def close(self) -> None:
        self.parts.close()

    def _epochs_for(self, seconds: float, least: int = 1) -> None:
        end, count = self.sync() + seconds, 0
        while count < least or time.perf_counter() < end:
            self.epoch()
            count += 1
        self.sync()
