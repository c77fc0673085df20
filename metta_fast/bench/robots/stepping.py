"""Steps a robot on the GPU with random actions, for `--robot` (in a child): what a rollout does without its policy.

Rows go into buffers like a rollout's. Episodes are staggered, so that new ones begin all the time. Masked rows are not
counted.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import EnvFactory
from metta_fast.vector import make_vector

HORIZON = 8
TAPE = 16
"""Rows of actions that are drawn beforehand."""
BURN_IN = 3
"""Rollouts before measuring."""


class RobotStepping:
    """Steps num_envs robots on one device."""

    def __init__(self, factory: EnvFactory, num_envs: int, device: str = "cuda") -> None:
        """factory: of robots, with pictures or without."""
        began = time.perf_counter()
        self.device = torch.device(device)
        vec: Any = make_vector(factory, num_envs, backend="gpu", device=self.device)
        self.vec = vec
        self.buffers = b = Buffers.allocate(
            vec.spec,
            num_agents=vec.num_agents,
            horizon=HORIZON,
            bptt_horizon=HORIZON,
            state_shape=(0, 0),
            device=vec.device,
        )
        b.env_action = torch.empty_like(b.action[0])
        vec.attach(b)
        low, high = (
            torch.tensor(bound, device=self.device) for bound in (vec.spec.action.low, vec.spec.action.high)
        )
        noise = torch.rand((TAPE, *b.action.shape[1:]), device=self.device)
        self._tape = low + noise * (high - low)
        self._rows = 0
        vec.async_reset(1, stagger=True)
        for _ in range(BURN_IN):
            self._rollout()
        self._sync()
        self._build_s = time.perf_counter() - began

    def ready(self) -> dict[str, Any]:
        return {"build_s": self._build_s, "notes": self.vec.notes()}

    def round(self, seconds: float) -> dict[str, Any]:
        """Steps for at least `seconds` seconds; returns steps per second, microseconds per row, MiB of Warp."""
        rows, live, elapsed = 0, torch.zeros((), dtype=torch.int64, device=self.device), 0.0
        start = self._sync()
        while elapsed < seconds:
            self._rollout()
            rows += HORIZON
            live += self.buffers.mask[:HORIZON].sum()
            elapsed = self._sync() - start
        used = self.vec.physics.used_bytes() / 2**20
        return {"steps_per_s": int(live) / elapsed, "us_per_row": 1e6 * elapsed / rows, "memory_mib": used}

    def close(self) -> None:
        self.vec.close()

    def _rollout(self) -> None:
        b = self.buffers
        for rows in (*b.obs.values(), b.mask, b.reset):
            rows[0].copy_(rows[HORIZON])
        assert b.env_action is not None
        for t in range(HORIZON):
            b.env_action.copy_(self._tape[self._rows % TAPE])
            self.vec.step_row(t)
            self._rows += 1

    def _sync(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()
