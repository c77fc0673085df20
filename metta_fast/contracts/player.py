"""Defines the interface of players, which choose actions outside training (evaluation, recorded episodes), and random
actions."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from metta_fast.contracts.env import ActionSpec, Array, EnvBatch, Rows


class Player(Protocol):
    """Chooses the actions of all agents."""

    def act(self, rows: Rows, batch: EnvBatch) -> Array:
        """Returns actions [n, width] for the rows.

        Args:
            batch: the environments, for players that read their internal state.
        """


def uniform(
    action: ActionSpec, agents: int, rng: np.random.Generator, action_mask: Array | None = None
) -> Array:
    """Returns actions [agents, width], uniform over each head's choices (box: within its bounds, or −1 … 1).

    Args:
        action_mask: [agents, P] bool: only choices that it allows. A head without one gets 0.
    """
    if action_mask is None:
        choices = rng.integers(0, action.nvec, (agents, len(action.nvec)), dtype=np.int32)
    else:
        drawn = np.where(action_mask, rng.random(action_mask.shape), -1.0)
        ends = np.cumsum(action.nvec)
        heads = [drawn[:, end - n : end].argmax(1) for n, end in zip(action.nvec, ends)]
        choices = np.stack(heads, 1).astype(np.int32)
    if action.kind == "discrete":
        return choices
    low, high = np.where(action.bounded, (action.low, action.high), [[-1.0], [1.0]])
    drawn = rng.uniform(low, high, (agents, len(action.low)))
    numbers = np.clip(drawn, action.low, action.high).astype(np.float32)
    return np.concatenate([choices.astype(np.float32), numbers], 1)
