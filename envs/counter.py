"""Implements the counter, the smallest environment: an example of a factory and a batch that trains in seconds.

    ./run_ultra_fast.sh env=counter

Each agent has a count that starts anywhere in 0 … goal. Action 1 counts up, action 0 waits. Counting up below the goal
and waiting at the goal have reward 1, all else 0. Counting past the goal resets the count to 0. An episode lasts
max_steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metta_fast.contracts.env import ActionSpec, Array, EnvSpec, Leaf, Rows
from metta_fast.contracts.errors import UserError


class CounterFactory:
    """Makes batches of counters (`metta_fast.contracts.env.EnvFactory`).

    Args:
        goal: the count to reach and keep, 1 … 255.
        dtype: of the observation [1]: float32 (the count divided by the goal) or uint8 (the count).
    """

    def __init__(
        self,
        *,
        agents_per_env: int = 1,
        max_steps: int = 64,
        limit_is_terminal: bool = False,
        goal: int = 10,
        dtype: str = "float32",
    ) -> None:
        if not (isinstance(goal, int) and 1 <= goal <= 255):
            raise UserError(f"counter: goal={goal!r}, expected a whole number from 1 to 255")
        if dtype not in ("float32", "uint8"):
            raise UserError(f"counter: dtype={dtype!r}, expected float32 or uint8")
        if max_steps < 1:
            raise UserError(f"counter: max_steps={max_steps}, expected at least 1")
        self.goal = goal
        self.limit_is_terminal = limit_is_terminal
        self.spec = EnvSpec(
            name="counter",
            agents_per_env=agents_per_env,
            obs={"obs": Leaf((1,), dtype)},
            action=ActionSpec("discrete", nvec=(2,)),
            stats=("right",),
            max_steps=max_steps,
            cheap_state=True,
            stagger=True,
        )

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> CounterBatch:
        return CounterBatch(self, first_env, num_envs, total_envs)


class CounterBatch:
    """Steps counters as numpy arrays (`metta_fast.contracts.env.EnvBatch`); n = num_envs, a = agents_per_env."""

    rows: Rows

    def __init__(self, factory: CounterFactory, first_env: int, num_envs: int, total_envs: int) -> None:
        self.factory, self.total_envs = factory, total_envs
        self.spec = factory.spec
        self.ids = np.arange(first_env, first_env + num_envs, dtype=np.uint64)
        shape = num_envs, self.spec.agents_per_env
        self.seed = 0
        self.count = np.zeros(shape, np.int64)  # [n, a]
        self.right = np.zeros(shape, np.float32)  # [n, a] right choices of the episode
        self.step_of = np.zeros(num_envs, np.int64)
        self.episode = np.zeros(num_envs, np.int64)
        self.pending = np.zeros(num_envs, np.bool_)
        """True: the episode has ended, and the next step starts a new one."""

    def bind(self, rows: Rows) -> None:
        self.rows = rows

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        self.seed = seed
        self.episode[:] = -1
        every = np.ones_like(self.pending)
        self._begin(every)
        if stagger:
            self.step_of[:] = self.ids.astype(np.int64) * self.spec.max_steps // self.total_envs
        self.rows.reward[:] = 0.0
        self._write(~every, every)

    def step(self) -> None:
        begins = self.pending.copy()  # these envs ignore the action
        up = self.rows.action.reshape(self.count.shape) == 1  # [n, a]
        right = (up == (self.count < self.factory.goal)) & ~begins[:, None]
        self.right += right
        self.count += up
        self.count[self.count > self.factory.goal] = 0
        self.step_of += 1
        self._begin(begins)
        self.rows.reward[:] = right.reshape(-1)
        self._write(self.step_of >= self.spec.max_steps, begins)

    def _begin(self, which: Array) -> None:
        """Starts new episodes in these envs."""
        self.episode[which] += 1
        self.step_of[which] = 0
        self.right[which] = 0
        self.count[which] = self._starts()[which]

    def _write(self, done: Array, begins: Array) -> None:
        """Writes all fields of the rows except the reward. done, begins: [n]."""

        def by_agent(x: Array) -> Array:
            return np.repeat(x, self.spec.agents_per_env)

        self.pending[:] = done
        obs = self.rows.obs["obs"][:, 0]
        obs[:] = (
            self.count.reshape(-1) / self.factory.goal if obs.dtype == np.float32 else self.count.reshape(-1)
        )
        self.rows.terminal[:] = by_agent(done) & self.factory.limit_is_terminal
        self.rows.truncation[:] = by_agent(done) & (not self.factory.limit_is_terminal)
        self.rows.mask[:] = by_agent(~done)
        self.rows.reset[:] = by_agent(begins)
        self.rows.stats[:, 0] = self.right.reshape(-1)

    def _starts(self) -> Array:
        """Returns the first counts [n, a] of each env's current episode: a hash (SplitMix64's finaliser) of seed, env,
        episode and agent."""
        agent = np.arange(self.count.shape[1], dtype=np.uint64)
        x = np.uint64(self.seed) ^ (self.ids << np.uint64(32)) ^ self.episode.astype(np.uint64)
        x = x[:, None] * np.uint64(0x9E3779B97F4A7C15) + agent * np.uint64(0xD1B54A32D192ED03)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return (x % np.uint64(self.factory.goal + 1)).astype(np.int64)

    def native_job(self) -> None:
        return None

    def state_dict(self) -> dict[str, Any]:
        names = ("count", "right", "step_of", "episode", "pending")
        return {"seed": self.seed, **{name: getattr(self, name).copy() for name in names}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed = state["seed"]
        for name in ("count", "right", "step_of", "episode", "pending"):
            getattr(self, name)[...] = state[name]

    def close(self) -> None:
        pass
