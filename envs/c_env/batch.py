"""Steps a batch of environments in C, and shows their rows to what draws them."""

from __future__ import annotations

from metta_fast.contracts.env import Array, Rows
from metta_fast.envs.native._library import LibraryBatch


class CBatch(LibraryBatch):
    """Implements `metta_fast.contracts.env.EnvBatch` over compiled rules."""

    def bind(self, rows: Rows) -> None:
        super().bind(rows)
        self.bound = rows

    def first(self) -> tuple[Array, Array]:
        """Returns views of the first environment: observations [agents, *shape], and its state, uint8 [bytes]."""
        obs, states = self.bound.obs["obs"], self.states
        return obs[: len(obs) // len(states)], states[0]
