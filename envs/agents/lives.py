"""Turns what environments of several agents report into rows: whose episode ends, begins, or is not there.

    lives = Lives(num_envs, agents, names)
    lives.bind(rows)
    lives.begin();  …each environment's first rows…;  lives.settle()
    …each environment's step…;  ended = lives.settle()

A slot (slot.py) writes what its environment said: reward, terminal, truncation, and mask = who is there, so whose
action the environment takes next. `settle` runs once for all environments of a batch:

    acted     was there in the row before, so that its action counted; what others got is dropped
    ended     acted and has a flag
    paused    acted, has no flag and is not there: the rules ended its episode (terminal), which is noted
    reset     is there and did not act, or with same_step ended just now

Next-step (the default): an agent with a flag is not there, so its next row is masked and has the last observation
(metta_fast.contracts.env). same_step: the environment has put it into a new episode, whose first row this is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from metta_fast.contracts.env import Array, Rows

MOST_NAMES = 24
"""Agents, or kinds of agents, that have statistics of their own."""


class Lives:
    """Keeps who is there, and each agent's return so far; N = num_envs · agents rows, environment by environment.

    Args:
        same_step: the environments begin an agent's next episode in the step that ends one.
        names: the agents' names, for messages and statistics; none: they have numbers, and no statistics of their own.
    """

    rows: Rows

    def __init__(
        self, num_envs: int, agents: int, *, same_step: bool = False, names: Sequence[str] = ()
    ) -> None:
        self.agents, self.same_step, self.names = agents, same_step, tuple(names)
        size = num_envs * agents
        self.acted = np.zeros(size, np.bool_)
        """[N] who is there in the present rows."""
        self.returns = np.zeros(size, np.float64)
        """[N] return so far of the unfinished episodes; `lengths` likewise."""
        self.lengths = np.zeros(size, np.int64)
        self.labels = labels(self.names)
        self.notes: dict[str, str] = {}

    def bind(self, rows: Rows) -> None:
        self.rows = rows

    def begin(self) -> None:
        """Forgets all agents: the next rows are the first of all environments."""
        self.acted[:] = False
        self.returns[:] = 0.0
        self.lengths[:] = 0

    def settle(self) -> Array | None:
        """Makes the rows of what the environments wrote into them. Returns [N] bool: the agents whose episode ended in
        this step, or None: nobody's. Their `returns` and `lengths` stay until `forget`."""
        rows, acted, there = self.rows, self.acted, self.rows.mask
        flagged = rows.terminal | rows.truncation
        if not self.same_step:
            there &= ~flagged
        ended: Array = flagged & acted
        idle = ~acted
        if idle.any():
            rows.reward[idle] = 0.0
            rows.terminal[idle] = False
            rows.truncation[idle] = False
        paused = acted & ~(there | ended)
        if paused.any():
            rows.terminal[paused] = True
            ended |= paused
            self._note(int(paused.argmax()))
        np.logical_and(there, idle | ended, out=rows.reset)
        if self.labels:
            self.returns += rows.reward
            self.lengths += acted
        acted[:] = there
        return ended if ended.any() else None

    def forget(self, ended: Array) -> None:
        """Begins the sums of these agents' next episodes. ended: [N] bool."""
        self.returns[ended] = 0.0
        self.lengths[ended] = 0

    def any_there(self) -> list[bool]:
        """Returns for each environment whether one of its agents is there."""
        there: list[bool] = self.acted.reshape(-1, self.agents).any(1).tolist()  # type: ignore[assignment]
        return there

    def results(self, env: int, which: Array) -> list[tuple[int, dict[str, float]]]:
        """Returns (agent, {"return/<name>": …, "length/<name>": …}) of the agents `which` ([n] bool) of one environment
        of the batch that have statistics of their own."""
        at = env * self.agents
        return [
            (
                agent,
                {
                    f"return/{self.labels[agent]}": float(self.returns[at + agent]),
                    f"length/{self.labels[agent]}": float(self.lengths[at + agent]),
                },
            )
            for agent in (np.flatnonzero(which).tolist() if self.labels else ())
        ]

    def _note(self, row: int) -> None:
        if "pause" not in self.notes:
            agent = row % self.agents
            name = self.names[agent] if self.names else str(agent)
            self.notes["pause"] = (
                f"agent {name} went away without terminated or truncated: its episode counts as terminated, and it "
                "begins a new one when it comes back"
            )

    def state_dict(self) -> dict[str, Any]:
        """Returns arrays [num_envs, agents]."""
        return {
            name: value.reshape(-1, self.agents)
            for name, value in (
                ("gone", ~self.acted),
                ("returns", self.returns.copy()),
                ("lengths", self.lengths.copy()),
            )
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.acted[:] = ~state["gone"].reshape(-1)
        for name in ("returns", "lengths"):
            getattr(self, name)[:] = state[name].reshape(-1)


def labels(names: Sequence[str]) -> tuple[str, ...]:
    """Returns for each agent what its statistics are called: its name, or of more than MOST_NAMES agents its kind, the
    name without its number (archer of archer_7). None if all would have the same, or too many different ones."""
    for found in (tuple(names), tuple(re.sub(r"[_-]?\d+$", "", name) or name for name in names)):
        if 2 <= len(set(found)) <= MOST_NAMES:
            return found
    return ()
