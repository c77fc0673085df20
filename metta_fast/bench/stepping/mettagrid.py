"""Compares MettaGrid's simulator in our vector with the package's own wrapper.

    python -m metta_fast.bench.stepping.mettagrid
    python -m metta_fast.bench.stepping.mettagrid --agents 24,1 --envs 32 --seconds 3 --repeats 7

    simulator           the C++ simulator's step on its own buffers, in a loop: nothing on one core can be faster
    ours, serial        our serial backend, which also makes the rows of episodes and statistics
    ours, workers       our workers, as many as cores
    wrapper, loop       MettaGridPufferEnv.step in a loop; it needs pufferlib and torch, and gives no statistics
    wrapper, Serial     the same in pufferlib.vector
    wrapper, processes  pufferlib.vector.Multiprocessing, as many as cores

All step the package's make_arena with random actions, drawn beforehand, and take turns. A step is one of one agent.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
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
from metta_fast.machine import hardware

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
    envs = [make_wrapped(agents, seed=i) for i in range(num_envs)]
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


def ours(agents: int, num_envs: int, backend: str) -> Ours:
    from mettagrid.builder.envs import make_arena

    from metta_fast.envs.mettagrid.factory import MettaGridFactory

    cores, blocks = (1, 1) if backend == "serial" else (hardware.allowed_cores(), 2)
    return Ours(MettaGridFactory(make_arena(num_agents=agents)), num_envs, backend, cores, blocks=blocks)


def make_wrapped(agents: int, buf: Any = None, seed: int = 0) -> Any:
    """Makes one wrapper, as pufferlib.vector calls it."""
    from mettagrid.builder.envs import make_arena
    from mettagrid.envs.mettagrid_puffer_env import MettaGridPufferEnv
    from mettagrid.simulator import Simulator

    return MettaGridPufferEnv(Simulator(), make_arena(num_agents=agents), buf=buf, seed=seed)


class PufferVector(Stepper):
    """Steps the wrapper in pufferlib.vector."""

    def __init__(self, agents: int, num_envs: int, backend: str) -> None:
        import pufferlib.vector

        cores = hardware.allowed_cores()
        more = {} if backend == "Serial" else {"num_workers": cores, "overwork": True}
        self.task, self._tape, self._count = "arena", tape(agents * num_envs), 0
        self._env = pufferlib.vector.make(
            partial(make_wrapped, agents),
            num_envs=num_envs,
            backend=getattr(pufferlib.vector, backend),
            **more,
        )
        self._env.async_reset(0)
        self._env.recv()

    def step(self) -> int:
        self._env.send(self._tape[self._count % TAPE])
        self._count += 1
        self._env.recv()
        return len(self._tape[0])

    def close(self) -> None:
        self._env.close()


SIDES: dict[str, Callable[[int, int], Any]] = {
    "simulator": simulator,
    "ours, serial": partial(ours, backend="serial"),
    "ours, workers": partial(ours, backend="workers"),
    "wrapper, loop": wrapper,
    "wrapper, Serial": partial(PufferVector, backend="Serial"),
    "wrapper, processes": partial(PufferVector, backend="Multiprocessing"),
}


def measure(
    agents: int, num_envs: int, seconds: float, repeats: int, say: Callable[[str], None]
) -> list[str]:
    """Returns the lines of the table for one number of agents."""
    notes = []
    if not (there := bool(PUFFERLIB.version())):
        notes.append(PUFFERLIB.absent())
    with ExitStack() as stack:
        steppers: dict[str, Any] = {}
        for name, make in SIDES.items():
            if there or not name.startswith("wrapper"):
                steppers[name] = make(agents, num_envs)
                stack.callback(steppers[name].close)
                steppers[name].round(BURN_IN_S)
        results, more = in_turns([partial(one.round, seconds) for one in steppers.values()], repeats, say)
    speeds = {
        name: [one["steps_per_s"] for one in rounds] for name, rounds in zip(steppers, results, strict=True)
    }
    lines = []
    for name, found in speeds.items():
        line = f"{agents:>6} {num_envs:>5}  {name:<18} {statistics.median(found):>10,.0f}"
        for rival in ("wrapper, loop", "wrapper, Serial", "wrapper, processes"):
            if name.startswith("ours") and rival in speeds:
                ratio = statistics.median(a / b for a, b in zip(found, speeds[rival], strict=True))
                line += f"   {ratio:.2f} × {rival}"
        lines.append(line)
    return lines + [f"note: {note}" for note in (*notes, *more)]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m metta_fast.bench.stepping.mettagrid", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--agents", default="24,1", help="agents of an environment, one table row for each")
    parser.add_argument("--envs", type=int, default=32, help="environments")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args(words)
    try:
        needs_mettagrid("this benchmark")
        print(f"{'agents':>6} {'envs':>5}  {'':18} {'steps/s':>10}")
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
