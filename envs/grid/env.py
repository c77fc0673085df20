"""Provides the grid world: `GridFactory` for the vector backends, `GridSim` for tests and scripts.

factory = GridFactory(num_agents=4, map="arena", room_size=[16, 16])
batch = factory.make_batch(0, 512, total_envs=512)           # metta_fast.contracts.env.EnvBatch

sim = GridSim(*grid_config(num_agents=2), seed=7)            # one env, explicit actions
sim.reset(); sim.step(np.zeros((2, 2), np.int32)); sim.views["agent_row"]; sim.observe("tokens")
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from metta_fast.contracts.env import ActionSpec, Array, EnvSpec, Leaf, Rows
from metta_fast.contracts.errors import UserError
from metta_fast.envs.grid._grid import GridBatch, GridParams
from metta_fast.envs.grid.config import grid_config
from metta_fast.envs.grid.gpu import GridProgram
from metta_fast.envs.grid.names import ACTIONS, OBSERVATIONS, STATS
from metta_fast.envs.grid.state import state_views

if TYPE_CHECKING:
    from metta_fast.contracts.player import Player
    from metta_fast.envs.grid.recorder import GridRecorder


class GridFactory:
    """Makes batches of grid worlds (`metta_fast.contracts.env.EnvFactory`). Only its configuration is pickled.

    Args:
        keys: arguments of `grid_config`.

    Raises:
        UserError: an unknown key or an impossible configuration.
    """

    def __init__(self, **keys: Any) -> None:
        known = sorted(inspect.signature(grid_config).parameters)
        for key in keys:
            if key not in known:
                raise UserError(f"unknown key {key!r} of the grid environment; known: {', '.join(known)}")
        self.record, self.table = grid_config(**keys)
        kind = tuple(OBSERVATIONS)[int(self.record["observation"])]
        self.spec = EnvSpec(
            name="grid",
            agents_per_env=int(self.record["num_agents"]),
            obs={"obs": Leaf(OBSERVATIONS[kind], "uint8", "grid")},
            action=ActionSpec("discrete", nvec=(len(ACTIONS), 9)),
            stats=STATS,
            max_steps=int(self.record["max_steps"]),
            native=True,
            cheap_state=True,
            stagger=True,
            gpu=True,
            state_bytes=GridParams(self.record, self.table).layout()["size"],
        )

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> GridBatch:
        """Makes the environments with global ids first_env … first_env+num_envs-1 of total_envs."""
        return GridBatch(GridParams(self.record, self.table), first_env, num_envs, total_envs)

    def make_recorder(self, batch: GridBatch) -> GridRecorder:
        """Returns a recorder for `metta_fast.episodes`."""
        from metta_fast.envs.grid.recorder import GridRecorder

        return GridRecorder(self.record, batch.states[0])

    def unseen(self) -> str:
        """Returns what an evaluation's seeds change."""
        return "unseen maps"

    def scripted_player(self) -> Player:
        """Returns the scripted player.

        Raises:
            UserError: it does not support these recipes.
        """
        from metta_fast.envs.grid.scripted.player import ScriptedPlayer

        return ScriptedPlayer(self.record)

    def observations(self) -> tuple[str, ...]:
        """Returns the values of env.observation."""
        return tuple(OBSERVATIONS)

    def gpu_program(self) -> GridProgram:
        """Returns the kernels for `metta_fast.vector.gpu.GpuVector`."""
        return GridProgram(self.record, self.table)


class GridSim:
    """Steps one env by hand, with next-step autoreset as in training. Each call overwrites the arrays.

    Attributes:
        reward f32 [N]; stats f32 [N, 8].
        terminal, truncation, mask, first: bool [N]; first marks the first row of an episode.
        state: uint8 [size], the env's bytes. views: the same bytes as named arrays (state.py).
    """

    def __init__(
        self,
        record: Array,
        table: Array | None = None,
        *,
        seed: int = 0,
        env_id: int = 0,
        total_envs: int | None = None,
    ) -> None:
        self.params = GridParams(record, table)
        self.record = self.params.record
        self.batch = GridBatch(self.params, env_id, 1, env_id + 1 if total_envs is None else total_envs)
        n = int(self.record["num_agents"])
        self.reward: Array = np.zeros(n, np.float32)
        self.terminal, self.truncation, self.mask, self.first = np.zeros((4, n), np.bool_)
        self.stats: Array = np.zeros((n, len(STATS)), np.float32)
        self.rows = Rows(
            {"obs": np.zeros((n, self.params.layout()["obs_size"]), np.uint8)},
            np.zeros((n, 2), np.int32),
            self.reward,
            self.terminal,
            self.truncation,
            self.mask,
            self.first,
            self.stats,
        )
        self.batch.bind(self.rows)
        self.seed = seed
        self.state: Array = self.batch.states[0]
        self.views = state_views(self.record, self.state)

    def reset(self, *, stagger: bool = False) -> None:
        """Starts the env's first episode (lifetime 0)."""
        self.batch.reset(self.seed, stagger=stagger)

    def step(self, actions: Array) -> None:
        """Steps with actions int32 [N, 2]. The call after an episode's end ignores them and resets."""
        self.rows.action[...] = actions
        self.batch.step()

    def observe(self, kind: str) -> Array:
        """Returns every agent's observation, of any kind: uint8 [N, 200, 3], [N, 11, 11, 24] or [N, 387]."""
        return self.params.observe(self.state, kind)

    @property
    def obs(self) -> Array:
        """Returns the observation rows that the last call wrote, uint8 [N, bytes], of the record's kind."""
        return self.rows.obs["obs"]
