"""Checks the values of the grid world's keys; each error has the key, the value and the expected values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metta_fast.contracts.errors import UserError
from metta_fast.envs.grid.names import MAX_SIDE


def integer(key: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise UserError(f"{key}={value!r}: expected a whole number from {low} to {high}")
    return int(value)


def pair(key: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise UserError(f"{key}={value!r}: expected two whole numbers, [rows, columns]")
    return integer(f"{key}[0]", value[0], 1, MAX_SIDE), integer(f"{key}[1]", value[1], 1, MAX_SIDE)


def index_of(key: str, name: Any, names: Sequence[str]) -> int:
    if name not in names:
        raise UserError(f"{key}: unknown name {name!r}; expected one of {', '.join(names)}")
    return names.index(name)


def mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError(f"{key}={value!r}: expected names with values, such as {{name: 1}}")
    return value


def truth(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise UserError(f"{key}={value!r}: expected true or false")
    return value


def thousandths(key: str, value: Any) -> int:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not abs(value) <= 1000 or abs(value * 1000 - round(value * 1000)) > 1e-6:
        raise UserError(
            f"{key}={value!r}: expected a number from -1000 to 1000 in whole thousandths "
            "(rewards are counted in thousandths)"
        )
    return round(value * 1000)
