"""Decides in which epochs a feature works, and checks features' keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from metta_fast.contracts.errors import UserError
from metta_fast.runtime.interval import Interval


def every(epochs: int, min_s: float = 0.0) -> Callable[[int], bool]:
    """Returns whether something is due at the end of an epoch (counted from 0): every `epochs` epochs of the run,
    resumed or not, and at least `min_s` seconds apart."""
    interval = Interval(epochs, min_s=min_s, start=None)
    return lambda epoch: interval.due(epoch + 1)


def whole_number(path: str, value: Any, low: int) -> int:
    """Returns `value` if it is a whole number of at least `low`.

    Raises:
        UserError: otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise UserError(f"{path}={value!r}: expected a whole number of at least {low}")
    return value


def number(path: str, value: Any, low: float, high: float) -> float:
    """Returns `value` as a float if it is a number from `low` to `high`.

    Raises:
        UserError: otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise UserError(f"{path}={value!r}: expected a number from {low:g} to {high:g}")
    return float(value)
