"""The GPU engine alone, for `--gpu` (in a child: gpu_worker.py): maps and steps, random actions, no policy.

HORIZON rows into buffers as a rollout has them, as one CUDA graph; episodes are staggered, so that map building takes
its share; masked rows are not counted.
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
"""Replays: away from the reset's rows."""
REPLAYS = 16
"""Between two looks at the clock; the last one's masked rows stand for all."""


class Stepping:
    """Environments stepped by replays of one graph."""

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
        """Replays for at least so many seconds: agent steps per second, microseconds a row."""
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
