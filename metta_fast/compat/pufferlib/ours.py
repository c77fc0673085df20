"""Gives vectors of our own environments the interface of pufferlib.vector.

    vec = pufferlib.vector.make("grid", num_envs=64)                  # a recipe, an id, my_module:make, an EnvFactory
    vec = pufferlib.vector.make("cartpole_c", num_envs=64, batch_size=32, backend="Multiprocessing")

backend=PufferEnv steps on our threads where the environment is native. Resets are ours, next-step: the row after an
episode's last action has the true last observation and mask False.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from metta_fast.compat.make_vec import make_vec
from metta_fast.compat.pufferlib.errors import APIUsageError
from metta_fast.compat.pufferlib.spaces import joint_space
from metta_fast.compat.pufferlib.vector_base import BaseVecEnv
from metta_fast.contracts.env import ActionSpec, Array, EnvFactory, Leaf
from metta_fast.contracts.vector import Block, VectorEnv

BACKENDS = {"Serial": "serial", "Multiprocessing": "workers", "PufferEnv": "auto"}


class Ours(BaseVecEnv):
    """Steps our environments. `driver_env` has their spaces."""

    def __init__(self, vec: VectorEnv, batch_size: int, options: Mapping[str, Any]) -> None:
        self._struct, observation = _observations(vec.spec.obs)
        self._copies = [np.zeros((block.size, *observation.shape), observation.dtype) for block in vec.blocks]
        driver = Driver(vec.spec.agents_per_env, observation, _actions(vec.spec.action), self._struct)
        self._teacher = [
            np.zeros((block.size, *driver.single_action_space.shape), vec.spec.action.dtype)
            for block in vec.blocks
        ]
        self.agent_ids = np.arange(vec.num_agents)
        self._start(vec, driver, batch_size, options)

    def _batch_of(self, block: Block) -> tuple[Any, ...]:
        rows, i = block.rows, block.index
        teacher = (self._teacher[i],) if self.teacher_in_recv else ()
        found = self._observed(block), rows.reward, rows.terminal, rows.truncation, *teacher
        return *found, [], self._ids[i], rows.mask

    def _observed(self, block: Block) -> Array:
        obs = block.rows.obs
        if self._struct is None:
            return next(iter(obs.values()))
        copied = self._copies[block.index]
        fields = copied.view(self._struct)[:, 0]
        for name, leaf in obs.items():
            fields[name] = leaf
        return copied

    def _give(self, block: Block, actions: Array) -> None:
        width = block.rows.action.shape[1]
        if actions.size != block.size * width:
            raise APIUsageError(f"actions {list(actions.shape)}: expected {[block.size, width]}")
        rows = actions.reshape(block.size, width)
        first = self._vec.spec.action.start
        if any(first):
            rows = rows - np.array(first, rows.dtype)
        self._vec.send(block, rows.astype(block.rows.action.dtype, copy=False))

    def notify(self) -> None:
        """Does nothing: these environments have no `notify`."""


class Driver:
    """Has what code reads of a driver_env."""

    def __init__(self, agents: int, observation: Any, action: Any, struct: Any) -> None:
        self.num_agents = agents
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space, self.action_space = (
            joint_space(observation, agents),
            joint_space(action, agents),
        )
        self.emulated = struct is not None and {
            "observation_dtype": observation.dtype,
            "emulated_observation_dtype": struct,
        }
        self.done, self.render_mode = False, None

    def render(self) -> None:
        """Returns None: replays show our environments (metta-fast replay)."""

    def close(self) -> None:
        pass


def make_ours(
    env: str | EnvFactory,
    kwargs: Mapping[str, Any],
    backend: str,
    num_envs: int,
    seed: int,
    options: Mapping[str, Any],
) -> Ours:
    """Makes num_envs of our environments. kwargs: the constructor's. The seed is that of `async_reset`."""
    batch = options.get("batch_size") or num_envs
    if num_envs % batch:
        raise APIUsageError(f"batch_size={batch}: expected a divisor of num_envs={num_envs}")
    vec = make_vec(
        env,
        num_envs,
        backend=BACKENDS[backend],
        kwargs=kwargs,
        num_workers=options.get("num_workers"),
        num_blocks=num_envs // batch,
    )
    try:
        return Ours(vec, batch, options)
    except BaseException:
        vec.close()
        raise


def _observations(leaves: Mapping[str, Leaf]) -> tuple[np.dtype | None, spaces.Box]:
    """Returns (None, the Box of the only leaf), or (an aligned struct of all leaves, the Box of its bytes)."""
    if len(leaves) == 1:
        leaf = next(iter(leaves.values()))
        return None, _box(leaf.shape, np.dtype(leaf.dtype))
    fields = [(name, leaf.dtype, leaf.shape) for name, leaf in leaves.items()]
    struct = np.dtype(fields, align=True)
    return struct, spaces.Box(0, 255, (struct.itemsize,), np.uint8)


def _box(shape: tuple[int, ...], dtype: np.dtype) -> spaces.Box:
    if dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, shape, dtype.type)
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, dtype.type)
    return spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype.type)


def _actions(action: ActionSpec) -> spaces.Space[Any]:
    if action.kind == "mixed":
        raise APIUsageError("choices and numbers together have no place in PufferLib's interface")
    if action.kind == "box":
        return spaces.Box(np.array(action.low, np.float32), np.array(action.high, np.float32))
    start = action.start or (0,) * len(action.nvec)
    if len(action.nvec) == 1:
        return spaces.Discrete(action.nvec[0], start=start[0])
    return spaces.MultiDiscrete(list(action.nvec), start=list(start))
