"""Measures the GPU engine alone, for `--gpu` (in a child): maps and steps with random actions, without a policy.

One CUDA graph writes HORIZON rows into buffers like a rollout's. Episodes are staggered, so that building maps takes
its usual share of the time. Masked rows are not counted.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from metta_fast.bench.stepping.cpu_simulator import env_config
from metta_fast.buffers.rollout import Buffers
from metta_fast.envs import make_factory
from metta_fast.runtime.cuda_graph import Graph
from metta_fast.vector import make_vector
from metta_fast.vector.gpu import build_and_step

HORIZON = 16
BURN_IN = 20
"""Replays before measuring, to leave the first episodes behind."""
REPLAYS = 16
"""Replays between two readings of the clock; masked rows are counted in the last one and taken for all."""


class Stepping:
    """Steps environments by replaying one graph."""

    def __init__(self, recipe: str, observation: str, num_envs: int, device: str = "cuda") -> None:
        self.device = torch.device(device)
        config = env_config(recipe, observation)
        factory: Any = make_factory(config)
        vec: Any = make_vector(factory, num_envs, backend="gpu", device=self.device)
        self.vec = vec
        self.notes: list[str] = []
        spec = vec.spec
        self.buffers = Buffers.allocate(
            spec,
            num_agents=vec.num_agents,
            horizon=HORIZON,
            bptt_horizon=HORIZON,
            state_shape=(0, 0),
            device=vec.device,
        )
        vec.attach(self.buffers)
        choices = torch.tensor(spec.action.nvec, device=self.device)
        noise = torch.rand(self.buffers.action.shape, device=self.device)
        self.buffers.action.copy_((noise * choices).int())
        vec.async_reset(1, stagger=True)
        cuda = self.device.type == "cuda"
        self._run = Graph("simulator", self._rows, enabled=cuda, say=self.notes.append)
        for _ in range(BURN_IN):
            self._run()
        self._sync()

    def ready(self) -> dict[str, Any]:
        return {"agents": self.vec.num_agents, "notes": self.notes}

    def round(self, seconds: float) -> dict[str, Any]:
        """Replays for at least `seconds` seconds; returns agent steps per second, microseconds per row, memory."""
        rows, live, elapsed = 0, torch.zeros((), dtype=torch.int64, device=self.device), 0.0
        start = self._sync()
        while elapsed < seconds:
            for _ in range(REPLAYS):
                self._run()
            rows += REPLAYS * HORIZON
            live += REPLAYS * self.buffers.mask[:HORIZON].sum()
            elapsed = self._sync() - start
        cuda = self.device.type == "cuda"
        return {
            "steps_per_s": int(live) / elapsed,
            "us_per_row": 1e6 * elapsed / rows,
            "memory_mib": torch.cuda.max_memory_reserved(self.device) / 2**20 if cuda else None,
        }

    def close(self) -> None:
        self.vec.close()

    def _rows(self) -> None:
        for t in range(HORIZON):
            build_and_step(self.vec, t)

    def _sync(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
