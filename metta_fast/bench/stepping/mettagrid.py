"""Compares MettaGrid's simulator in our vector with the package's own wrapper, in one process on one core.

    python -m metta_fast.bench.stepping.mettagrid
    python -m metta_fast.bench.stepping.mettagrid --agents 24,1 --envs 8 --seconds 3 --repeats 7

    simulator   the C++ simulator's step on its own buffers, in a loop: nothing can be faster
    ours        our serial backend, which also makes the rows of episodes and statistics
    wrapper     MettaGridPufferEnv.step in a loop; it needs pufferlib and torch

All step the package's make_arena with random actions, drawn beforehand, and take turns. A step is one of one agent.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from metta_fast.bench.harness.libraries import PUFFERLIB
from metta_fast.bench.harness.rounds import in_turns
from metta_fast.bench.stepping.cpu_simulator import TAPE
from metta_fast.bench.stepping.steppers import Ours, Stepper
from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.mettagrid.package import needs_mettagrid

MOVES = 5
"""Actions of the arena."""
BURN_IN_S = 0.5


def tape(agents: int) -> list[Array]:
    """Returns TAPE arrays of actions, int32 [agents]."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, MOVES, agents).astype(np.int32) for _ in range(TAPE)]


class Loop(Stepper):
    """Steps environments one after another by a function of the actions of each."""

    def __init__(self, agents: int, steps: Sequence[Callable[[Array], Any]]) -> None:
        self.task, self._agents, self._steps = "arena", agents, steps
        self._tape, self._count = tape(agents), 0

    def step(self) -> int:
        actions = self._tape[self._count % TAPE]
        self._count += 1
        for step in self._steps:
            step(actions)
        return self._agents * len(self._steps)


def wrapper(agents: int, num_envs: int) -> Loop:
    """Makes the package's wrapper, as its docstring shows."""
    from mettagrid.builder.envs import make_arena
    from mettagrid.envs.mettagrid_puffer_env import MettaGridPufferEnv
    from mettagrid.simulator import Simulator

    envs = [
        MettaGridPufferEnv(Simulator(), make_arena(num_agents=agents), buf=None, seed=i)
        for i in range(num_envs)
    ]
    for env in envs:
        env.reset()
    return Loop(agents, [env.step for env in envs])


def simulator(agents: int, num_envs: int) -> Loop:
    """Makes the simulator alone; it is not reset, so an episode goes on after its end."""
    from mettagrid.builder.envs import make_arena
    from mettagrid.simulator import Simulator

    simulations = [Simulator().new_simulation(make_arena(num_agents=agents), seed=i) for i in range(num_envs)]
    return Loop(agents, [partial(_bare, simulation._c_sim) for simulation in simulations])


def _bare(engine: Any, actions: Array) -> None:
    engine.actions()[:] = actions
    engine.step()


def ours(agents: int, num_envs: int) -> Ours:
    from mettagrid.builder.envs import make_arena

    from metta_fast.envs.mettagrid.factory import MettaGridFactory

    return Ours(MettaGridFactory(make_arena(num_agents=agents)), num_envs, "serial", 1, blocks=1)


def measure(
    agents: int, num_envs: int, seconds: float, repeats: int, say: Callable[[str], None]
) -> list[str]:
    """Returns the lines of the table for one number of agents."""
    sides = {"simulator": simulator, "ours": ours}
    notes = []
    if PUFFERLIB.version():
        sides["wrapper"] = wrapper
    else:
        notes.append(PUFFERLIB.absent())
    steppers: dict[str, Any] = {name: make(agents, num_envs) for name, make in sides.items()}
    for stepper in steppers.values():
        stepper.round(BURN_IN_S)
    results, more = in_turns([partial(one.round, seconds) for one in steppers.values()], repeats, say)
    speeds = {
        name: [one["steps_per_s"] for one in rounds] for name, rounds in zip(steppers, results, strict=True)
    }
    steppers["ours"].close()
    lines = []
    for name, found in speeds.items():
        line = f"{agents:>6} {num_envs:>5}  {name:<10} {statistics.median(found):>12,.0f}"
        if name == "wrapper":
            ratios = sorted(a / b for a, b in zip(speeds["ours"], found, strict=True))
            line += f"   ours is {statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        lines.append(line)
    return lines + [f"note: {note}" for note in (*notes, *more)]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m metta_fast.bench.stepping.mettagrid", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--agents", default="24,1", help="agents of an environment, one table row for each")
    parser.add_argument("--envs", type=int, default=8, help="environments")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args(words)
    try:
        needs_mettagrid("this benchmark")
        print(f"{'agents':>6} {'envs':>5}  {'':10} {'steps/s':>12}")
        for word in given.agents.split(","):
            for line in measure(int(word), given.envs, given.seconds, given.repeats, _say):
                print(line, flush=True)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
