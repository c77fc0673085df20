"""Implements what PufferLib's vectors share: the order of calls, batches, and the attributes that trainers read.

async_reset ─► recv ─► send ─► recv ─► …          reset = async_reset + recv; step = send + recv
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metta_fast.compat.pufferlib.batch import NO_SEED
from metta_fast.compat.pufferlib.errors import APIUsageError
from metta_fast.compat.pufferlib.spaces import joint_space
from metta_fast.contracts.env import Array
from metta_fast.contracts.vector import Block, VectorEnv

RESET, SEND, RECV = 0, 2, 3
"""What may be called next, in `flag`: async_reset alone, send, recv."""


def reset(vecenv: Any, seed: int | None = 42) -> tuple[Any, Any]:
    """Resets all environments. Returns (observations, infos) of the first batch."""
    vecenv.async_reset(seed)
    found = vecenv.recv()
    return found[0], found[-3]


def step(vecenv: Any, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Sends actions and receives a batch. Returns (observations, rewards, terminals, truncations, infos)."""
    vecenv.send(np.asarray(actions))
    found = vecenv.recv()
    return (*found[:4], found[-3])


class BaseVecEnv:
    """Gives a vector of ours PufferLib's calls. A subclass makes it and calls `_start`."""

    reset = reset
    step = step
    agent_ids: Array
    driver_env: Any

    def _start(self, vec: VectorEnv, driver: Any, batch_size: int, options: Mapping[str, Any]) -> None:
        """Takes the vector.

        Args:
            driver: an environment, whose spaces and attributes the caller reads.
            batch_size: environments of a block.
            options: sync_traj, teacher_actions.
        """
        self._vec, self.driver_env = vec, driver
        self.num_agents = vec.num_agents
        self.agents_per_batch = batch_size * vec.spec.agents_per_env
        self.single_observation_space = driver.single_observation_space
        self.single_action_space = driver.single_action_space
        self.transport_single_action_space = getattr(
            driver, "single_transport_action_space", self.single_action_space
        )
        self.observation_space = joint_space(self.single_observation_space, self.agents_per_batch)
        self.action_space = joint_space(self.transport_single_action_space, self.agents_per_batch)
        self.emulated = getattr(driver, "emulated", False)
        self.sync_traj = options.get("sync_traj", True)
        self.teacher_in_recv = options.get("teacher_actions", False)
        self.flag, self.initialized = RESET, False
        self._ids = [np.arange(block.start, block.stop) for block in vec.blocks]
        self._block: Block | None = None
        self._held: dict[int, Block] = {}
        """Batches that are here but not in turn yet."""
        self._next = 0

    @property
    def num_envs(self) -> int:
        """The number of agents in a batch, as in PufferLib."""
        return self.agents_per_batch

    def async_reset(self, seed: int | None = None) -> None:
        """Resets all environments: environment i with seed + i, or without one."""
        if seed is not None and (isinstance(seed, bool) or int(seed) != seed or not 0 <= seed < NO_SEED):
            raise APIUsageError(f"seed={seed!r}: expected a whole number of at least 0, or None")
        self._vec.async_reset(NO_SEED if seed is None else int(seed))
        self._held.clear()
        self.flag, self._next = RECV, 0

    def recv(self) -> tuple[Any, ...]:
        """Returns the next batch: (observations, rewards, terminals, truncations, infos, agent_ids, masks); with
        teacher_actions=True teacher_actions before infos."""
        if self.flag != RECV:
            raise APIUsageError(
                "recv was called before reset or send: call async_reset first, and send after each recv"
            )
        block = self._block = self._received()
        self.flag = SEND
        return self._batch_of(block)

    def _batch_of(self, block: Block) -> tuple[Any, ...]:
        rows = block.rows
        teacher = (rows.obs["teacher_actions"],) if self.teacher_in_recv else ()
        flags = rows.terminal, rows.truncation
        found = rows.obs["observations"], rows.reward, *flags, *teacher
        return *found, self._infos(block), self._ids[block.index], rows.mask

    def _received(self) -> Block:
        if not self.sync_traj:
            return self._vec.recv()
        while self._next not in self._held:
            block = self._vec.recv()
            self._held[block.index] = block
        block = self._held.pop(self._next)
        self._next = (self._next + 1) % len(self._vec.blocks)
        return block

    def send(self, actions: Any) -> None:
        """Sends the actions of the batch that was received last, [agents_per_batch, *shape of an action]."""
        block = self._block
        if self.flag != SEND or block is None:
            raise APIUsageError("send was called before recv: call recv first, and send once after each recv")
        actions = np.asarray(actions)
        if not self.initialized:
            if not self.action_space.contains(actions):
                raise APIUsageError(
                    f"actions {actions.dtype} {list(actions.shape)} are not in the action space {self.action_space}"
                )
            self.initialized = True
        self._give(block, actions)
        self.flag = RECV

    def _give(self, block: Block, actions: Array) -> None:
        to = block.rows.obs["actions"]
        if actions.size != to.size:
            raise APIUsageError(f"actions {list(actions.shape)}: expected {list(to.shape)}")
        np.copyto(to, actions.reshape(to.shape), casting="same_kind")
        self._vec.send(block)

    def notify(self) -> None:
        """Has each environment's `notify` called before its next step."""
        if self._block is None or self.flag != SEND:
            raise APIUsageError("notify goes between recv and send")
        self._block.rows.obs["notify"][:] = 1

    def _infos(self, block: Block) -> list[Any]:
        return []

    def close(self) -> None:
        """Closes all environments and ends the workers."""
        self._vec.close()
