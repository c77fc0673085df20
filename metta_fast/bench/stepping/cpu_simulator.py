"""Measures the CPU simulator alone: steps per second and core for 1, 4 and 24 agents and each kind of observation.

    python benchmark_performance.py --simulator

Single thread: one batch's native step over all its environments. All threads: the `threads` backend in one block, per
core. Actions are uniform and drawn beforehand. Episodes are staggered, so that resets (building maps) take their usual
share of the time. Masked rows are not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from metta_fast.bench.harness.report import Report
from metta_fast.bench.harness.rounds import headed, in_turns
from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.env import Array, EnvFactory, EnvSpec
from metta_fast.contracts.player import uniform
from metta_fast.contracts.slab import new_rows
from metta_fast.envs import make_factory
from metta_fast.machine import hardware
from metta_fast.resolve.compose import compose
from metta_fast.vector import make_vector

RECIPES = {"grid_solo": 1, "grid_bench": 4, "grid_arena": 24}
"""Recipe → agents per environment."""
QUICK = "grid_bench"
"""The recipe of --quick."""
KINDS = ("compact", "dense", "tokens")
AGENTS = 1024
"""Approximate number of agents in total: as in training, more than a small cache holds."""
TAPE = 64
"""Number of different action arrays, used cyclically."""


def env_config(recipe: str, kind: str | None = None, agents: int = AGENTS) -> EnvConfig:
    """Returns the recipe's environment with about `agents` agents in total and observations of a kind."""
    overrides = ["hardware=cpu", f"env={recipe}"] + ([f"env.observation={kind}"] if kind else [])
    config = compose(overrides).config.env
    config.num_envs = max(1, agents // config.agents_per_env)
    return config


def action_tape(spec: EnvSpec, agents: int, seed: int = 0) -> list[Array]:
    """Draws TAPE arrays [agents, width] of uniform actions."""
    rng = np.random.default_rng(seed)
    return [uniform(spec.action, agents, rng) for _ in range(TAPE)]


class SingleThread:
    """Steps one batch natively on this thread."""

    def __init__(self, factory: EnvFactory, num_envs: int) -> None:
        spec = factory.spec
        self.batch = factory.make_batch(0, num_envs, num_envs)
        self.rows = new_rows(spec, num_envs * spec.agents_per_env)
        self.tape = action_tape(spec, num_envs * spec.agents_per_env)
        self.batch.bind(self.rows)
        self.batch.reset(0, stagger=True)
        self.count = 0

    def step(self) -> int:
        """Steps every environment once; returns the number of agent steps."""
        rows = self.rows
        acting = int(np.count_nonzero(rows.mask))
        rows.action[...] = self.tape[self.count % TAPE]
        self.count += 1
        self.batch.step()
        return acting

    def close(self) -> None:
        self.batch.close()


class AllThreads:
    """Steps through the `threads` backend in one block, with one thread per allowed core."""

    def __init__(self, factory: EnvFactory, num_envs: int, threads: int) -> None:
        self.vec = make_vector(
            factory,
            num_envs,
            backend="threads",
            num_blocks=1,
            num_workers=1,
            num_threads=threads,
            worker_timeout_s=60.0,
        )
        self.tape = action_tape(factory.spec, self.vec.num_agents)
        self.vec.async_reset(0, stagger=True)
        self.block = self.vec.recv()
        self.count = 0

    def step(self) -> int:
        """Steps every environment once; returns the number of agent steps."""
        acting = int(np.count_nonzero(self.block.rows.mask))
        self.vec.send(self.block, self.tape[self.count % TAPE])
        self.count += 1
        self.block = self.vec.recv()
        return acting

    def close(self) -> None:
        self.vec.close()


def timed(step: Callable[[], int], seconds: float, cores: int = 1, *, calls: int = 8) -> dict[str, Any]:
    """Calls `step` for `seconds` seconds; returns {"steps_per_s": per core}.

    Args:
        calls: calls between two readings of the clock.
    """
    start = time.perf_counter()
    steps = 0
    while (elapsed := time.perf_counter() - start) < seconds:
        for _ in range(calls):
            steps += step()
    return {"steps_per_s": steps / elapsed / cores}


def simulate(
    report: Report, seconds: float, repeats: int, say: Callable[[str], None], *, quick: bool = False
) -> None:
    """Adds a row for each recipe, kind and number of threads (1, all). quick: for grid_bench alone."""
    cores = hardware.allowed_cores()
    recipes = {QUICK: RECIPES[QUICK]} if quick else RECIPES
    for recipe, agents in recipes.items():
        for kind in KINDS:
            config = env_config(recipe, kind)
            factory, envs = make_factory(config), config.num_envs
            sims: list[tuple[str, int, SingleThread | AllThreads]] = [
                ("1 thread", 1, SingleThread(factory, envs))
            ]
            if cores > 1:
                sims.append((f"{cores} threads, per core", cores, AllThreads(factory, envs, cores)))
            try:
                for _, _, sim in sims:
                    timed(sim.step, min(seconds, 0.5))
                results, notes = in_turns(
                    [partial(timed, sim.step, seconds, n) for _, n, sim in sims],
                    repeats,
                    headed(say, f"{recipe} {kind}"),
                )
            finally:
                for _, _, sim in sims:
                    sim.close()
            report.notes += [f"{recipe} {kind}: {note}" for note in notes]
            for (name, _, _), rounds in zip(sims, results, strict=True):
                report.add_row(
                    f"{recipe} ({agents} agent{'s' * (agents > 1)}), {kind}, {name}",
                    [one["steps_per_s"] for one in rounds],
                )
