"""Defines the interface of players, which choose actions outside training (evaluation, recorded episodes); random
actions, and the check that an action mask leaves a choice."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from metta_fast.contracts.env import ActionSpec, Array, EnvBatch, EnvError, EnvSpec, Rows


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


def first_illegal(action_mask: Array, live: Array | None, spec: EnvSpec) -> tuple[int, int] | None:
    """Returns (row, head) of the first row of action_mask [n, P] bool, among those of `live` [n] bool (None: all), that
    leaves an action head without a legal choice; None if there is none."""
    starts = np.cumsum((0, *spec.action.nvec[:-1]))
    legal = np.logical_or.reduceat(action_mask, starts, axis=1)
    illegal = ~legal.all(1)
    if live is not None:
        illegal &= live
    if not illegal.any():
        return None
    row = int(illegal.argmax())
    return row, int(legal[row].argmin())


def check_legal(
    action_mask: Array, live: Array | None, spec: EnvSpec, first_agent: int = 0, where: str = ""
) -> None:
    """Checks the masks by which actions are about to be chosen; arguments as those of `first_illegal`.

    Args:
        first_agent: the agent of the first row.
        where: added to the environment's number in the message.

    Raises:
        EnvError: naming the environment of the first live row without a legal choice.
    """
    found = first_illegal(action_mask, live, spec)
    if found is not None:
        raise without_choice(spec, first_agent + found[0], where, found[1])


def without_choice(spec: EnvSpec, agent: int, where: str, head: int = 0) -> EnvError:
    """Returns the error for an agent's action mask that leaves a head without a legal choice."""
    env, in_env = divmod(agent, spec.agents_per_env)
    which = f" for action head {head}" if len(spec.action.nvec) > 1 else ""
    return EnvError(
        f"{spec.name} gave an action mask without a legal choice{which} in environment {env} (agent {in_env} of it)"
        f"{where}; allow at least one, or end the episode in the step before",
        env,
    )
