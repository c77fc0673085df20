"""Who chooses actions."""

from __future__ import annotations

from typing import Protocol

from metta_fast.contracts.env import Array, EnvBatch, Rows


class Player(Protocol):
    """Chooses the actions of all agents."""

    def act(self, rows: Rows, batch: EnvBatch) -> Array:
        """Actions [n, width] for the rows; `batch` for players that look at the environments' own state."""
