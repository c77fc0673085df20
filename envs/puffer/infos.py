"""Adds up the numbers in the infos of PufferEnvs, which come in any step and are means of many episodes already.

    infos.add([{"score": 3.0, "n": 2}])
    infos.sums()                               # {"score": (3.0, 1), "n": (2.0, 1)}: env/score, env/n

Names of nested dicts are joined with a slash. Of a list or an array each number counts. Other values are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from metta_fast.envs.info_stats import MOST, NAME, TAKEN


class InfoSums:
    """Keeps the sums since the last call of `sums`, of the MOST names that come first."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._sums: dict[str, tuple[float, int]] = {}

    def add(self, infos: Iterable[Any]) -> None:
        """Takes the infos of one call."""
        for info in infos:
            for name, value in _numbers(info):
                if name in TAKEN or len(name) > NAME or not np.isfinite(value).all():
                    continue
                if name not in self._names:
                    if len(self._names) >= MOST:
                        continue
                    self._names.add(name)
                total, count = self._sums.get(name, (0.0, 0))
                self._sums[name] = total + float(value.sum()), count + value.size

    def sums(self) -> dict[str, tuple[float, int]]:
        found, self._sums = self._sums, {}
        return found


def _numbers(info: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (name, array of numbers) of a nested dict."""
    for key, value in info.items() if isinstance(info, Mapping) else ():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{name}/")
        elif isinstance(value, (bool, int, float, list, tuple, np.generic, np.ndarray)):
            try:
                array = np.asarray(value)
            except ValueError:  # a list of lists of different lengths
                continue
            if array.dtype.kind in "biuf" and array.size:
                yield name, array.astype(np.float64)
