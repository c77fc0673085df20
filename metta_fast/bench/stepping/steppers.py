"""Steps environments for a measurement, ours and others': `ready()`, `round(seconds)`, `close()`.

A step is one action that reached an environment; a call that only begins a new episode is not counted. Actions are
drawn beforehand. Nothing steps between rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from metta_fast.bench.stepping.cpu_simulator import TAPE, timed
from metta_fast.bench.stepping.vector_backends import BLOCKS, held_round, turner
from metta_fast.contracts.env import Array, EnvFactory

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv


class Ours:
    """Steps environments through one of our backends."""

    def __init__(
        self, factory: EnvFactory, num_envs: int, backend: str, cores: int, blocks: int = BLOCKS
    ) -> None:
        self._turner = turner(factory, num_envs, backend, cores, blocks=blocks)
        self._turner.vec.hold_all()

    def round(self, seconds: float) -> dict[str, Any]:
        return held_round(self._turner, seconds, calls=1)

    def ready(self) -> dict[str, Any]:
        return {"envs": self._turner.vec.spec.name}

    def close(self) -> None:
        self._turner.close()


class Stepper:
    """Base class of peers."""

    task: str
    """Name of the environment that it steps."""

    def step(self) -> int:
        """Steps all environments or some of them; returns the number of actions that reached an environment."""
        raise NotImplementedError

    def round(self, seconds: float) -> dict[str, Any]:
        """Steps for `seconds` seconds; returns {"steps_per_s"}."""
        return timed(self.step, seconds, calls=1)

    def ready(self) -> dict[str, Any]:
        return {"envs": self.task}

    def close(self) -> None:
        """Frees resources; the base class has none."""


class GymnasiumVector(Stepper):
    """Steps a Gymnasium vector environment, which resets in the next step: the call after an end ignores its action.

    Args:
        tape: TAPE arrays of actions for all its environments.
    """

    def __init__(self, task: str, env: VectorEnv, tape: list[Array]) -> None:
        self.task, self._env, self._tape = task, env, tape
        self._ended = np.zeros(env.num_envs, np.bool_)
        self._count = 0
        env.reset(seed=0)

    def step(self) -> int:
        acting = len(self._ended) - int(np.count_nonzero(self._ended))
        _, _, terminated, truncated, _ = self._env.step(self._tape[self._count % TAPE])
        self._count += 1
        self._ended = terminated | truncated
        return acting

    def close(self) -> None:
        self._env.close()


class EnvPool(Stepper):
    """Steps EnvPool, which resets in the next step: the call after an end ignores its action.

    Args:
        task: EnvPool's name of the environment.
        at_once: environments that a call steps.
        tape: returns TAPE arrays of actions [at_once, …] in a dtype of this name.
    """

    def __init__(
        self, task: str, num_envs: int, threads: int, at_once: int, tape: Callable[[str], list[Array]]
    ) -> None:
        import envpool

        self.task = task
        self._env = envpool.make(
            task,
            env_type="gymnasium",
            num_envs=num_envs,
            batch_size=at_once,
            num_threads=threads,
            seed=0,
        )
        self._tape = tape(self._env.action_space.dtype.name)
        self._ended = np.zeros(num_envs, np.bool_)
        self._count = 0
        self._env.async_reset()
        self._ids = self._env.recv()[-1]["env_id"]

    def step(self) -> int:
        ids = self._ids
        acting = len(ids) - int(np.count_nonzero(self._ended[ids]))
        self._env.send(self._tape[self._count % TAPE], ids)
        self._count += 1
        _, _, terminated, truncated, info = self._env.recv()
        self._ids = info["env_id"]
        self._ended[self._ids] = terminated | truncated
        return acting

    def close(self) -> None:
        self._env.close()
