"""Collects the numbers in the `info` of an episode's last step that nobody declared as statistics.

    batch.info.add(i, info, ended)        # python_slot.py: an episode of environment i of the batch ended
    batch.info.add_agents(i, found)       # agents/slot.py: (agent, numbers) of the agents whose episode ended
    batch.info_sums()                     # {name: (sum, number)} since the last call: env/<name>
    batch.last_info()                     # {i: {name: [n]}} of the episodes since the last call: for evaluations

Finite numbers and bools count; for several agents arrays [n] too. Gymnasium's own entries do not: `episode` of
RecordEpisodeStatistics repeats return and length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from metta_fast.contracts.env import Array

MOST = 64
"""Names that are kept: the first that come."""
NAME = 100
"""Letters of the longest name that is kept."""
NOT_OURS = frozenset({"episode", "TimeLimit.truncated", "final_obs", "final_info", "final_observation"})
TAKEN = frozenset({"return", "length", "return_100"})
"""Names of env/* that have a meaning."""


class InfoStats:
    """Adds up numbers of the episodes that end in one batch."""

    def __init__(self, declared: Sequence[str], agents: int) -> None:
        self._skip = NOT_OURS | TAKEN | {name.partition("/")[0] for name in declared}
        self._agents = agents
        self._names: set[str] = set()
        self._sums: dict[str, tuple[float, int]] = {}
        self._last: dict[int, dict[str, Array]] = {}

    def add(self, env: int, info: Any, which: Array) -> None:
        """Takes the info of an episode's last step.

        Args:
            env: number of the environment in the batch.
            which: [n] bool: the agents whose episode ends.
        """
        if not info or not isinstance(info, Mapping):
            return
        for name, value in info.items():
            if not isinstance(name, str) or name in self._skip or name[:1] == "_" or len(name) > NAME:
                continue
            numbers = self._numbers(value)
            if numbers is None or not np.isfinite(numbers[which]).all():
                continue
            self._keep(env, name, numbers, which)

    def add_agents(self, env: int, found: Iterable[tuple[int, Any]]) -> None:
        """Takes what single agents said in their episode's last step: pairs of the agent's number and a mapping."""
        columns: dict[str, Array] = {}
        for agent, info in found:
            for name, value in info.items() if isinstance(info, Mapping) else ():
                if not isinstance(name, str) or name in self._skip or name[:1] == "_" or len(name) > NAME:
                    continue
                number = np.asarray(value) if isinstance(value, (bool, int, float, np.generic)) else None
                if number is not None and number.dtype.kind in "biuf" and np.isfinite(number):
                    columns.setdefault(name, np.full(self._agents, np.nan))[agent] = float(number)
        for name, numbers in columns.items():
            self._keep(env, name, numbers, ~np.isnan(numbers))

    def _keep(self, env: int, name: str, numbers: Array, which: Array) -> None:
        """Adds the numbers [n] of the agents `which`."""
        if name not in self._names:
            if len(self._names) >= MOST:
                return
            self._names.add(name)
        total, count = self._sums.get(name, (0.0, 0))
        self._sums[name] = total + float(numbers[which].sum()), count + int(which.sum())
        self._last.setdefault(env, {})[name] = numbers

    def _numbers(self, value: Any) -> Array | None:
        """Returns a value as float64 [n], or None: it is neither a number nor one for each agent."""
        if isinstance(value, (bool, int, float)):
            try:
                return np.full(self._agents, float(value))
            except OverflowError:
                return None
        if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind not in "biuf":
            return None
        if value.shape not in ((), (self._agents,)) or (value.shape == (1,) == (self._agents,)):
            return None
        return np.broadcast_to(value.astype(np.float64), (self._agents,))

    def sums(self) -> dict[str, tuple[float, int]]:
        """Returns {name: (sum over episodes, number of episodes)} since the last call."""
        found, self._sums = self._sums, {}
        self._last.clear()
        return found

    def last(self) -> dict[int, dict[str, Array]]:
        """Returns the numbers of each environment's last episode since the last call."""
        found, self._last = self._last, {}
        return found
