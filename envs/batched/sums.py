"""Adds up the numbers that batched environments report about episodes that ended: env/<name> in the metrics.

sums.add("success", total, count)        # numbers or tensors: nothing is read from a device here
sums.means()                             # {"success": mean over the episodes since the last call}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.envs.info_stats import MOST, NAME, NOT_OURS, TAKEN

SKIPPED = NOT_OURS | TAKEN | {"env_id", "elapsed_step", "action_mask", "time_outs", "terminated", "truncated"}
"""Entries of info that are no statistics; EnvPool's number of an environment is none."""


class Sums:
    """Keeps the sum and the number of values of each name, at most MOST of them."""

    def __init__(self) -> None:
        self._sums: dict[str, list[Any]] = {}
        self._known: set[str] = set()

    def add(self, name: str, total: Any, count: Any) -> None:
        """Adds `count` values whose sum is `total`. A name beyond the first MOST is left out."""
        if name not in self._known:
            if len(self._known) >= MOST:
                return
            self._known.add(name)
        entry = self._sums.get(name)
        if entry is None:
            self._sums[name] = [total, count]
        else:
            entry[0], entry[1] = entry[0] + total, entry[1] + count

    def means(self) -> dict[str, float]:
        """Returns the means of the finite ones since the last call."""
        sums, self._sums = self._sums, {}
        found = {name: float(total) / float(count) for name, (total, count) in sums.items() if float(count)}
        return {name: mean for name, mean in found.items() if np.isfinite(mean)}


def numbers(infos: Any) -> Iterator[tuple[str, Any]]:
    """Yields the entries of info that may be statistics."""
    for name, value in infos.items() if isinstance(infos, Mapping) else ():
        if isinstance(name, str) and name not in SKIPPED and name[:1] != "_" and len(name) <= NAME:
            yield name, value


def add_arrays(sums: Sums, infos: Any, done: Array) -> list[tuple[int, str, float]]:
    """Adds the numbers [N] in Gymnasium's vector info of the environments `done` [N] bool whose episode ended. Returns
    (environment, name, number) of each."""
    found = []
    for name, value in numbers(infos):
        if not isinstance(value, np.ndarray) or value.shape != done.shape or value.dtype.kind not in "biuf":
            continue
        there = infos.get(f"_{name}")
        which = done & there if isinstance(there, np.ndarray) and there.shape == done.shape else done
        if which.any():
            sums.add(name, float(value[which].sum()), int(which.sum()))
            found += [(int(i), name, float(value[i])) for i in np.flatnonzero(which)]
    return found
