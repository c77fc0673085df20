"""Defines the interface of players, which choose actions outside training (evaluation, recorded episodes)."""

from __future__ import annotations

from typing import Protocol

from metta_fast.contracts.env import Array, EnvBatch, Rows


class Player(Protocol):
    """Chooses the actions of all agents."""

    def act(self, rows: Rows, batch: EnvBatch) -> Array:
        """Returns actions [n, width] for the rows.

        Args:
            batch: the environments, for players that read their internal state.
        """
