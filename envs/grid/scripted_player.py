"""The scripted agent as a player."""

from __future__ import annotations

from metta_fast.contracts.env import Array, EnvBatch, EnvFactory, Rows
from metta_fast.contracts.errors import UserError


class ScriptedPlayer:
    """The grid's scripted agent (envs/grid/scripted.py), which sees the whole map.

    Raises:
        UserError: this grid's recipes are not such as it can work, or its actions are repeated.
    """

    def __init__(self, factory: EnvFactory) -> None:
        from metta_fast.envs.grid.env import GridFactory
        from metta_fast.envs.grid.scripted import ScriptedAgent

        if not isinstance(factory, GridFactory):
            raise UserError("no scripted player with env.action_repeat: it chooses every single step")
        self._record = factory.record
        self._agent = ScriptedAgent(factory.record)
        self._views: list[dict[str, Array]] = []

    def act(self, rows: Rows, batch: EnvBatch) -> Array:
        from metta_fast.envs.grid._grid import GridBatch
        from metta_fast.envs.grid.state import state_views

        assert isinstance(batch, GridBatch)
        self._views = self._views or [state_views(self._record, state) for state in batch.states]
        return self._agent.act(self._views)
