"""Joins and cuts environment states along the environments (see `EnvBatch.state_dict`).

The joined state of a run does not depend on the numbers of blocks and workers, so a resumed run may change them.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from metta_fast.contracts.env import Rows
from metta_fast.contracts.errors import UserError

State = dict[str, Any]


def join(states: list[State]) -> State:
    """Joins the states of neighbouring batches, given in order, into one state."""
    first = states[0]
    if any(s.keys() != first.keys() for s in states):
        raise ValueError(f"states hold different keys: {sorted({k for s in states for k in s})}")
    return {key: _join(key, [s[key] for s in states]) for key in first}


def _join(key: str, values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return join(values)
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    if isinstance(values[0], list):
        return [entry for value in values for entry in value]
    if any(v != values[0] for v in values):
        raise ValueError(
            f"{key!r} differs between batches ({values}); what differs must be an array or a list "
            "with one entry per environment"
        )
    return values[0]


def cut(state: State, start: int, stop: int) -> State:
    """Returns the state of environments [start, stop)."""
    return {
        key: cut(value, start, stop)
        if isinstance(value, dict)
        else value[start:stop]
        if isinstance(value, (np.ndarray, list))
        else value
        for key, value in state.items()
    }


def copied(value: Any) -> Any:
    """Returns a copy of what a Python environment gave: containers, arrays and whatever else can change.

    Raises:
        UserError: a value cannot be copied.
    """
    kind = type(value)
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy(order="K")
    if kind is dict:
        return {key: copied(entry) for key, entry in value.items()}
    if kind is list or kind is tuple:
        return kind([copied(entry) for entry in value])
    if kind in _UNCHANGEABLE or isinstance(value, np.generic):
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise UserError(
            f"an environment's state holds a {kind.__name__}, which cannot be copied ({error}): return plain values "
            "and arrays from its state_dict"
        ) from error


_UNCHANGEABLE = frozenset({type(None), bool, int, float, complex, str, bytes})


def save_rows(rows: Rows) -> State:
    """Copies the rows: {"obs": {leaf: array}, "reward": array, …}."""
    return {
        "obs": {name: leaf.copy() for name, leaf in rows.obs.items()},
        **{name: getattr(rows, name).copy() for name in _saved(rows)},
    }


def _saved(rows: Rows) -> list[str]:
    """Returns the names of the arrays to save; an action mask only where the environment gives one."""
    return [name for name in Rows._fields[1:] if name != "action_mask" or rows.action_mask.size]


def load_rows(rows: Rows, state: State) -> None:
    """Writes saved rows back.

    Raises:
        ValueError: a name, shape or dtype differs.
    """
    pairs = [(f"obs/{name}", leaf, state["obs"].get(name)) for name, leaf in rows.obs.items()]
    pairs += [(name, getattr(rows, name), state.get(name)) for name in _saved(rows)]
    for name, to, value in pairs:
        if value is None or value.shape != to.shape or value.dtype != to.dtype:
            given = "nothing" if value is None else f"{value.dtype} {value.shape}"
            raise ValueError(f"state of another run: {name} is {given}, expected {to.dtype} {to.shape}")
    for _, to, value in pairs:
        to[...] = value
