"""Provides our environments to other libraries' trainers, and measures their rounds (sb3_grid.py, pufferlib.py).

Our environments end an episode with an extra row: the true last observation, whose action is ignored. These libraries
do not know such rows and learn from them (one in env.max_steps); as everywhere, they are not counted as steps. Each
library normalises, logs and schedules as it does by default. torch's threads and the policy's device are the same.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch

from metta_fast.bench.training.side import BURN_IN_EPOCHS, composed_side
from metta_fast.config.keys import Config
from metta_fast.contracts.env import Array, Rows
from metta_fast.envs import make_factory
from metta_fast.resolve.resolve import resolve
from metta_fast.rollout.transfer import pin
from metta_fast.runtime.torch_setup import configure_torch
from metta_fast.vector import Block, make_vector


class Stepper:
    """Steps our environments: actions in, rows out. Counts the actions that reached an environment.

    If the policy is on a GPU, rows are in pinned memory, as in our own training.
    """

    def __init__(self, config: Config, blocks: int = 1) -> None:
        self.factory = make_factory(config.env)
        self.spec = self.factory.spec
        vector = config.vector
        self.vec = make_vector(
            self.factory,
            config.env.num_envs,
            backend=vector.backend,
            num_blocks=blocks,
            num_workers=vector.num_workers,
            num_threads=vector.num_threads,
            worker_timeout_s=vector.worker_timeout_s,
        )
        if config.trainer.device == "cuda":
            pin(self.vec.slab, self)
        (self.leaf,) = self.spec.obs
        self.steps = 0
        self._held: dict[int, Block] = {}

    def start(self) -> None:
        """Resets all environments and starts every block."""
        self.vec.async_reset(0, stagger=self.spec.stagger)
        self._held, self._next = {}, 0

    def reset(self) -> Array:
        """Resets and returns the first observations of the first block, [agents, …]."""
        self.start()
        return self.recv().obs[self.leaf]

    def send(self, actions: Array) -> None:
        """Sends actions to the block that was received last."""
        rows = self.block.rows
        self.steps += int(np.count_nonzero(rows.mask))
        width = rows.action.shape[1]
        self.vec.send(self.block, actions.reshape(-1, width).astype(rows.action.dtype, copy=False))

    def recv(self) -> Rows:
        """Receives the next rows; blocks come in fixed order, regardless of which is ready first."""
        while self._next not in self._held:
            block = self.vec.recv()
            self._held[block.index] = block
        self.block = self._held.pop(self._next)
        self._next = (self._next + 1) % len(self.vec.blocks)
        return self.block.rows

    def spaces(self) -> tuple[Any, Any]:
        """Returns Gymnasium's observation and action space of one agent."""
        import gymnasium

        spaces: Any = gymnasium.spaces
        leaf, action = self.spec.obs[self.leaf], self.spec.action
        kind = np.dtype(leaf.dtype)
        low, high = (0, 255) if kind == np.uint8 else (-np.inf, np.inf)
        observed = spaces.Box(low, high, leaf.shape, kind.type)
        if action.kind == "box":
            return observed, spaces.Box(np.array(action.low, np.float32), np.array(action.high, np.float32))
        one = len(action.nvec) == 1
        return observed, spaces.Discrete(action.nvec[0]) if one else spaces.MultiDiscrete(action.nvec)


class Trained:
    """Base class of the other libraries' trainers, with configuration, environments and device."""

    def __init__(self, overrides: list[str], blocks: int = 1) -> None:
        self.config = resolve(composed_side(overrides)).config
        torch.set_num_threads(self.config.trainer.torch_threads)
        torch.manual_seed(self.config.seed)
        self.device = torch.device(self.config.trainer.device)
        configure_torch(self.config.trainer, self.device)
        self.stepper = Stepper(self.config, blocks)
        self.horizon = self.config.trainer.batch_size // self.stepper.vec.num_agents

    def epoch(self) -> None:
        """Runs the library's own epoch: a rollout and its update."""
        raise NotImplementedError

    def ready(self) -> dict[str, Any]:
        """Returns a note on differences from the unmodified library, or ""."""
        return {"ready": True, "note": ""}

    def burn_in(self, seconds: float) -> dict[str, Any]:
        """Runs a round of at least BURN_IN_EPOCHS epochs."""
        return self.round(seconds, BURN_IN_EPOCHS)

    def round(self, seconds: float, least: int = 1) -> dict[str, Any]:
        """Runs whole epochs for at least `seconds` seconds; returns {"steps_per_s", "epochs"}."""
        first, start, epochs = self.stepper.steps, self._now(), 0
        while epochs < least or time.perf_counter() - start < seconds:
            self.epoch()
            epochs += 1
        elapsed = self._now() - start
        return {"steps_per_s": (self.stepper.steps - first) / elapsed, "epochs": epochs}

    def _now(self) -> float:
        """Waits for the device and returns the time."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def close(self) -> None:
        self.stepper.vec.close()
