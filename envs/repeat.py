"""Implements env.action_repeat: the environment repeats each action of the policy for several steps.

    factory = repeated(factory, 4)                 # 1: the factory itself

    action row ─► the environment's own steps, with that action, until an episode ends ─► one row
                    rewards are summed; observation, flags and statistics are the last step's

An episode's last row is that of its true last step, so time limits bootstrap as usual. In an environment with several
agents, the first agent's end ends the repetition. Each repetition counts as one agent step; `env.max_steps` counts the
environment's own steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

import numpy as np

from metta_fast.contracts import batch_state as states
from metta_fast.contracts.env import EnvBatch, EnvFactory, NativeBatch, Rows
from metta_fast.contracts.env_answers import scripted_player
from metta_fast.contracts.errors import UserError


def repeated(factory: EnvFactory, repeat: int) -> EnvFactory:
    """Returns `factory` with each action repeated `repeat` times."""
    return factory if repeat == 1 else RepeatFactory(factory, repeat)


class RepeatFactory:
    """Wraps an EnvFactory, and forwards its other attributes."""

    def __init__(self, inner: EnvFactory, repeat: int) -> None:
        self.inner, self.repeat = inner, repeat
        limit = -(-inner.spec.max_steps // repeat)  # in repetitions
        self.spec = dataclasses.replace(inner.spec, max_steps=limit)

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> EnvBatch:
        kind = _NativeBatch if self.inner.spec.native else _Batch
        return kind(self.inner, self.repeat, first_env, num_envs, total_envs)

    def __getattr__(self, name: str) -> Any:
        if name in ("inner", "__setstate__"):  # missing while it is being unpickled
            raise AttributeError(name)
        found = getattr(self.inner, name)
        return self._recorder if name == "make_recorder" else found

    def scripted_player(self) -> None:
        """Raises UserError if the inner environment has a scripted player, because it needs every step."""
        if scripted_player(self.inner) is not None:
            raise UserError("no scripted player with env.action_repeat: it chooses every single step")

    def _recorder(self, batch: Any) -> Any:
        """Returns the inner recorder, which sees one in `repeat` steps."""
        recorder = self.inner.make_recorder(batch)  # type: ignore[attr-defined]
        if hasattr(recorder, "lasting"):
            recorder.lasting(self.repeat)
        return recorder


class _NativeBatch:
    """Wraps a native batch: C calls its job for each environment."""

    def __init__(
        self, inner: EnvFactory, repeat: int, first_env: int, num_envs: int, total_envs: int
    ) -> None:
        from metta_fast.envs.native._repeat import RepeatJob  # type: ignore[attr-defined]

        self.inner = inner.make_batch(first_env, num_envs, total_envs)
        self._job = RepeatJob(self.inner, inner.spec.agents_per_env, repeat)

    def bind(self, rows: Rows) -> None:
        self.inner.bind(rows)
        self._job.bind(rows)

    def step(self) -> None:
        if self._job.step():
            cast("NativeBatch", self.inner).raise_fault()

    def native_job(self) -> tuple[int, int, int] | None:
        job: tuple[int, int, int] = self._job.native_job()
        return job

    def __getattr__(self, name: str) -> Any:
        """Forwards reset, state_dict, load_state_dict, close, raise_fault, notes, physics, … to the inner batch."""
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


class _Batch:
    """Wraps batches of one environment each, stepped one after another."""

    def __init__(
        self, inner: EnvFactory, repeat: int, first_env: int, num_envs: int, total_envs: int
    ) -> None:
        self._repeat, self._agents = repeat, inner.spec.agents_per_env
        self._inner = [inner.make_batch(first_env + i, 1, total_envs) for i in range(num_envs)]
        self._rows: list[Rows] = []

    def bind(self, rows: Rows) -> None:
        self._rows = [rows.slice(i * self._agents, (i + 1) * self._agents) for i in range(len(self._inner))]
        for batch, own in zip(self._inner, self._rows):
            batch.bind(own)

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        for batch in self._inner:
            batch.reset(seed, stagger=stagger)

    def step(self) -> None:
        for batch, rows in zip(self._inner, self._rows):
            total = np.zeros(self._agents)
            for _ in range(self._repeat):
                batch.step()
                total += rows.reward
                if (rows.terminal | rows.truncation | rows.reset).any():
                    break
            rows.reward[:] = total

    def native_job(self) -> None:
        return None

    def on_mask(self, call: Callable[[], None]) -> None:
        """As PythonBatch's; called only for a PythonEnvFactory."""
        for batch in self._inner:
            batch.on_mask(call)  # type: ignore[attr-defined]

    def state_dict(self) -> dict[str, Any]:
        return states.join([batch.state_dict() for batch in self._inner])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for i, batch in enumerate(self._inner):
            batch.load_state_dict(states.cut(state, i, i + 1))

    def notes(self) -> dict[str, str]:
        """Returns the inner batch's notes; called only if EnvSpec.notes is True."""
        return {kind: text for batch in self._inner for kind, text in batch.notes().items()}  # type: ignore[attr-defined]

    def info_sums(self) -> dict[str, tuple[float, int]]:
        """Returns the inner batches' sums; called only if EnvSpec.info_stats is True."""
        found: dict[str, tuple[float, int]] = {}
        for batch in self._inner:
            for name, (total, count) in batch.info_sums().items():  # type: ignore[attr-defined]
                before = found.get(name, (0.0, 0))
                found[name] = before[0] + total, before[1] + count
        return found

    def last_info(self) -> dict[int, dict[str, Any]]:
        found: dict[int, Any] = {}
        for i, batch in enumerate(self._inner):
            for values in batch.last_info().values():  # type: ignore[attr-defined]
                found[i] = values
        return found

    def close(self) -> None:
        with ExitStack() as stack:
            for batch in self._inner:
                stack.callback(batch.close)
