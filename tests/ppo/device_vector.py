"""Provides a vector like the GPU's (attach, build_ahead, step_row) over a serial one on the CPU, for tests."""

from __future__ import annotations

from typing import Any

import torch

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.device_vector import DeviceVector as Contract
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.vector import VectorError
from metta_fast.vector import make_vector


class DeviceVector(Contract):
    capturable = True

    def __init__(self, factory: EnvFactory, num_envs: int | None = None) -> None:
        num_envs = num_envs or factory.envs  # type: ignore[attr-defined]
        self.inner = make_vector(factory, num_envs, backend="serial", worker_timeout_s=30.0)
        self.spec, self.blocks = factory.spec, self.inner.blocks
        self.num_envs, self.num_agents = self.inner.num_envs, self.inner.num_agents
        self.first_env, self.total_envs = self.inner.first_env, self.inner.total_envs
        self.buffers: Buffers | None = None
        self.build_every = factory.spec.max_steps + 1
        self.builds = 0
        self.since_build = self.build_every
        """Rows stepped since `build_ahead`; so many that none may follow, where maps may be missing."""

    def attach(self, buffers: Buffers) -> None:
        self.buffers = buffers

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        self.since_build = self.build_every
        self.inner.async_reset(seed, stagger=stagger)
        self.inner.recv()
        assert self.buffers is not None
        self._show(self.buffers.horizon)

    def build_ahead(self) -> None:
        self.since_build = 0
        self.builds += 1

    def step_row(self, t: int) -> None:
        b, rows = self.buffers, self.inner.rows
        assert b is not None
        assert self.since_build < self.build_every
        self.since_build += 1
        self.inner.send(self.inner.blocks[0], b.action[t].numpy())
        self.inner.recv()
        for name in ("reward", "terminal", "truncation"):
            getattr(b, name)[t] = torch.from_numpy(getattr(rows, name))
        if rows.terminal.any() or rows.truncation.any():
            b.stats[t] = torch.from_numpy(rows.stats)
        self._show(t + 1)

    def _show(self, t: int) -> None:
        b, rows = self.buffers, self.inner.rows
        assert b is not None
        for name, leaf in b.obs.items():
            leaf[t] = torch.from_numpy(rows.obs[name])
        b.mask[t], b.reset[t] = torch.from_numpy(rows.mask), torch.from_numpy(rows.reset)

    @property
    def ready(self) -> bool:
        try:
            self.inner.hold_all()
        except VectorError:
            return False
        return True

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def snapshot(self) -> Any:
        state = self.inner.state_dict()
        return lambda: state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.since_build = self.build_every
        self.inner.load_state_dict(state)
        assert self.buffers is not None
        self._show(self.buffers.horizon)

    def close(self) -> None:
        self.inner.close()
