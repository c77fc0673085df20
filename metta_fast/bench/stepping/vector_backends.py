"""Measures the cost of the vector backends: steps per second through each of them, without a policy.

    python benchmark_performance.py --vector

`counter` steps in almost no time, so its speed shows the backend's own cost (in the JSON also as microseconds for one
block's send and recv). The grid shows how much of the simulator's speed remains. Actions are those of cpu_simulator.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from metta_fast.bench.harness.report import Report
from metta_fast.bench.harness.rounds import headed, in_turns
from metta_fast.bench.stepping.cpu_simulator import TAPE, action_tape, env_config, timed
from metta_fast.contracts.env import Array, EnvFactory
from metta_fast.contracts.vector import VectorEnv
from metta_fast.envs import make_factory
from metta_fast.machine import hardware
from metta_fast.vector import make_vector

RECIPES = ("counter", "grid_bench")
BACKENDS = ("serial", "threads", "workers")
BLOCKS = 2


class Turner:
    """Sends every block back as soon as it arrives, with actions drawn beforehand.

    Args:
        tape: TAPE arrays of actions [agents, width].
    """

    def __init__(self, vec: VectorEnv, tape: Sequence[Array]) -> None:
        self.vec, self.tape, self.count = vec, tape, 0
        vec.async_reset(0, stagger=vec.spec.stagger)

    def turn(self) -> int:
        """Receives and sends one block; returns its number of agent steps."""
        block = self.vec.recv()
        acting = int(np.count_nonzero(block.rows.mask))
        self.vec.send(block, self.tape[self.count % TAPE][block.start : block.stop])
        self.count += 1
        return acting

    def close(self) -> None:
        self.vec.close()


def turner(factory: EnvFactory, num_envs: int, backend: str, cores: int, *, blocks: int = BLOCKS) -> Turner:
    """Makes a vector with as many workers, or threads, as cores, and its Turner."""
    vec = make_vector(
        factory,
        num_envs,
        backend=backend,
        num_blocks=blocks,
        num_workers=cores,
        num_threads=cores if backend == "threads" else 1,
        worker_timeout_s=60.0,
    )
    return Turner(vec, action_tape(factory.spec, vec.num_agents))


def held_round(turning: Turner, seconds: float, *, calls: int = 8) -> dict[str, Any]:
    """Measures a round that starts and ends with every block held, so that nothing steps during other rounds.

    Args:
        calls: turns between two readings of the clock.
    """
    first = turning.count
    for block in turning.vec.blocks:
        turning.vec.send(block, turning.tape[0][block.start : block.stop])
    found = timed(turning.turn, seconds, calls=calls)
    turning.vec.hold_all()
    return found | {"turns_per_s": (turning.count - first) / seconds}


def overhead(report: Report, seconds: float, repeats: int, say: Callable[[str], None]) -> None:
    """Adds a row for each environment and backend; the backends take turns."""
    cores = hardware.allowed_cores()
    for recipe in RECIPES:
        config = env_config(recipe)
        factory = make_factory(config)
        turners: list[Turner] = []
        try:
            for backend in BACKENDS:
                turners.append(turner(factory, config.num_envs, backend, cores))
                timed(turners[-1].turn, min(seconds, 0.5))
                turners[-1].vec.hold_all()
            results, notes = in_turns(
                [partial(held_round, each, seconds) for each in turners],
                repeats,
                headed(say, recipe),
            )
        finally:
            for each in turners:
                each.close()
        report.notes += [f"{recipe}: {note}" for note in notes]
        for backend, rounds in zip(BACKENDS, results, strict=True):
            workers = f", {cores} of them" if backend != "serial" else ""
            turns = sorted(one["turns_per_s"] for one in rounds)[len(rounds) // 2]
            report.add_row(
                f"{recipe}, {backend}{workers}, {BLOCKS} blocks",
                [one["steps_per_s"] for one in rounds],
                microseconds_per_block=round(1e6 / turns, 1),
            )
