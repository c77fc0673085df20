"""Holds one environment of MettaGrid: a simulation for each episode, which writes into buffers that it is given.

    game = Game(config, index, buffers)
    game.begin(seed)                          # the first episode: observations are there
    buffers.actions[:] = …;  game.step()
    if game.over(): game.stats(); game.begin_next()

`game.step` is the C++ simulator's own, which takes a quarter of the time of the package's wrapper for one agent. Where
the configuration ends episodes by statistics, it is the package's `Simulation.step`, which looks at them.

Traps of the package that are handled here: its wrapper resets in the step after an end, so that a new episode's first
observation never arrives; a first observation shows the action that is left in the buffer; maps have a seed of their
own (maps.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.envs.mettagrid.maps import fixed_globals, with_map_seed

if TYPE_CHECKING:
    from mettagrid.config.mettagrid_config import MettaGridConfig
    from mettagrid.simulator import Simulation
    from mettagrid.simulator.simulator import Buffers

COUNTS = "objects."
"""Begin of the names of statistics that count the map's objects: they come last, for the most that are kept."""


class Game:
    """Steps the simulations of environment `index` (the global number) one after another."""

    simulation: Simulation | None = None
    """The present episode's."""
    step: Callable[[], None]

    def __init__(self, config: MettaGridConfig, index: int, buffers: Buffers) -> None:
        self.config, self.index, self.buffers = config, index, buffers
        self.seed = 0
        self.episode = -1

    def begin(self, seed: int) -> None:
        """Starts the first episode of a seed of the run."""
        self.seed, self.episode = seed, -1
        self.begin_next()

    def begin_next(self) -> None:
        """Starts the next episode: the buffers hold its first observation, no reward and no flags."""
        from mettagrid.simulator import Simulation

        self.episode += 1
        engine, maps = episode_seeds(self.seed, self.index, self.episode)
        to = self.buffers
        for values in (to.rewards, to.terminals, to.truncations, to.actions, to.vibe_actions):
            values[:] = 0  # type: ignore[index]
        game = with_map_seed(self.config.game, maps, self.episode)
        with fixed_globals(maps):
            found = Simulation(self.config.model_copy(update={"game": game}), engine, buffers=to)
        self.simulation = found
        ends_by_statistics = bool(self.config.game.end_episode_on_game_stats)
        self.step = found.step if ends_by_statistics else found._c_sim.step

    def over(self) -> bool:
        """Returns whether the episode is over: every agent has ended."""
        return bool(self.buffers.terminals.all() or self.buffers.truncations.all())

    def stats(self) -> dict[str, Any]:
        """Returns the episode's statistics so far: {"agent/<name>": [n] float64, "game/<name>": float}. An agent
        without a statistic has 0, as in the package's means."""
        found: dict[str, Any] = {}
        assert self.simulation is not None
        given: Any = self.simulation.episode_stats
        agents = given["agent"]
        for name in sorted({name for agent in agents for name in agent}):
            found[f"agent/{name}"] = np.array([agent.get(name, 0.0) for agent in agents])
        for name in sorted(given["game"], key=lambda name: (name.startswith(COUNTS), name)):
            found[f"game/{name}"] = float(given["game"][name])
        return found

    def close(self) -> None:
        """Lets the simulation go, which a recorder may still read."""
        self.simulation, self.step = None, _closed


def episode_seeds(seed: int, index: int, episode: int) -> tuple[int, int]:
    """Returns the seeds of the engine and of the map, 31 bits each: hashed from the run's seed, the environment's
    global index and the number of its episode."""
    engine, maps = np.random.SeedSequence(seed, spawn_key=(index, episode)).generate_state(2)
    return int(engine >> 1), int(maps >> 1)


def new_buffers(observations: Array, actions: Array, vibes: Array, flags: dict[str, Array]) -> Buffers:
    """Returns the package's buffers over these arrays of n agents.

    Args:
        observations: uint8 [n, T, 3], C-contiguous.
        actions, vibes: int32 [n].
        flags: rewards float32 [n]; terminals, truncations bool [n].
    """
    from mettagrid.simulator.simulator import Buffers

    return Buffers(
        observations=observations,
        terminals=flags["terminals"],
        truncations=flags["truncations"],
        rewards=flags["rewards"],
        masks=np.ones(len(actions), np.bool_),
        actions=actions,
        teacher_actions=vibes,
        vibe_actions=vibes,
    )


def _closed() -> None:
    raise RuntimeError("the simulation is closed")
