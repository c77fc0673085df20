"""Makes a player (contracts/player.py) of the grid's scripted agent; `GridFactory.scripted_player` gives it."""

from __future__ import annotations

from metta_fast.contracts.env import Array, EnvBatch, Rows


class ScriptedPlayer:
    """Plays as the grid's scripted agent (envs/grid/scripted/agent.py), which sees the whole map.

    Args:
        record: the grid's configuration (GRID_CONFIG).

    Raises:
        UserError: the scripted agent cannot work with this grid's recipes.
    """

    def __init__(self, record: Array) -> None:
        from metta_fast.envs.grid.scripted.agent import ScriptedAgent

        self._record = record
        self._agent = ScriptedAgent(record)
        self._views: list[dict[str, Array]] = []

    def act(self, rows: Rows, batch: EnvBatch) -> Array:
        from metta_fast.envs.grid._grid import GridBatch
        from metta_fast.envs.grid.state import state_views

        assert isinstance(batch, GridBatch)
        self._views = self._views or [state_views(self._record, state) for state in batch.states]
        return self._agent.act(self._views)
