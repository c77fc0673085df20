"""Holds one environment of several agents: the base of the slots that step one (arrays.py, parallel.py).

A slot writes what the environment said; lives.py makes rows of it (who writes what: its docstring). Place in the flow:
PythonBatch (python_batch.py) has one slot per environment, and settles the rows of all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from metta_fast.contracts.env import Array
from metta_fast.envs.actions import ActionDecoder
from metta_fast.envs.python_slot import Made, Slot


class AgentsSlot(Slot):
    """Steps one environment of n agents. A kind of its own implements `reset` and `step`."""

    def __init__(self, factory: Made, index: int) -> None:
        super().__init__(factory, index)
        self.agents = (factory.spec.agents_per_env,)
        self.info: Any = None
        """What came with the last step: `finish` reads statistics from it."""
        self.steady = False
        """The rows' flags and mask are those of a step in which nobody ended, came or went; a slot may use it."""
        self.decoder = ActionDecoder(factory.action_space)
        self.own_results: Callable[[Array], Iterable[tuple[int, Mapping[str, Any]]]] = _none
        """Returns (agent, numbers) of the agents whose episode ends: Lives.results of this environment."""
        self.note_agents: Callable[[Iterable[tuple[int, Mapping[str, Any]]]], None] = _forget
        """Takes (agent, numbers) of the agents whose episode ends."""
        self.notes: dict[str, str] = {}
        """Messages for the user, by their kind."""

    def begin(self, there: Array | bool = True) -> None:
        """Writes reward, flags and presence of an episode's first rows."""
        rows = self.rows
        rows.reward[:] = 0.0
        rows.terminal[:] = rows.truncation[:] = False
        rows.mask[:] = there

    def reset(self, seed: int | None) -> None:
        """Writes the first rows of an episode."""
        raise NotImplementedError

    def step(self) -> None:
        """Steps the environment and writes obs, action_mask, reward, terminal, truncation, and mask = who is there."""
        raise NotImplementedError

    def restart(self) -> None:
        """Writes the first rows of the environment's next episode."""
        self.reset(None)

    def loaded(self) -> None:
        """Called when the environment's state was loaded, and other rows with it."""
        self.steady = False

    def finish(self, which: Array) -> None:
        """Writes the statistics of the agents `which`, [n] bool, whose episode ended in this step."""
        if self.factory.spec.stats:
            self._stats(self.info, which)
        self.note(self.info, which)
        self.note_agents(self.own_results(which))

    def acting(self) -> Array:
        """Returns [n] bool: who acts next, of what was written so far."""
        rows = self.rows
        if self.factory.same_step:
            return rows.mask
        return rows.mask & ~(rows.terminal | rows.truncation)

    def _hint(self) -> str:
        """Says why a wrapper may have failed: most of Gymnasium's are for one agent."""
        if getattr(self.env, "env", None) is None:
            return ""
        return f"; perhaps {type(self.env).__name__} is a wrapper for one agent: this environment has several"


def _none(which: Array) -> tuple[tuple[int, Mapping[str, Any]], ...]:
    return ()


def _forget(found: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
    """Takes no statistics."""
