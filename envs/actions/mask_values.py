"""Converts action masks, as environments and callers give them, to one array of bool.

    reader = MaskReader(spec.nvec, action_space)
    reader.read(value, (), "action mask")                     # bool [P], one entry for each choice

action space                 mask
Discrete(n)                  [n]
MultiDiscrete, MultiBinary   [sum of the heads' choices], the heads side by side; [heads, n] where all have n choices;
                             or a tuple or list with a mask for each head. A bit has two choices, 0 and 1
Dict, Tuple (nested)         [P], the parts' choices side by side in the space's order; or a dict or tuple with a mask
                             for each part. None: all choices of the part are legal. Continuous parts have no mask

With agents: [*agents, …] in place of […]. Entries are bool, or whole numbers 0 and 1.

Place in the flow: masks.py reads the environment's masks with it, inference/loaded_policy.py a caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from metta_fast.contracts.env import Array
from metta_fast.envs.actions.leaf import leaf_spec
from metta_fast.envs.nested import is_nested
from metta_fast.envs.spaces import FieldError


class MaskReader:
    """Reads masks of one action space; P = sum(nvec).

    Args:
        nvec: choices of each head, of all parts together.
        space: the action space, for masks by its parts; None: a mask has no parts but the heads.
    """

    def __init__(self, nvec: Sequence[int], space: spaces.Space[Any] | None = None) -> None:
        self._root = _Heads(nvec) if space is None else _node(space)
        self.size = sum(nvec)
        """P."""

    def read(self, value: Any, agents: tuple[int, ...], what: str) -> Array:
        """Returns the mask as bool [*agents, P].

        Args:
            what: names the mask in a message.

        Raises:
            FieldError: another shape or dtype, an unknown or missing part, or a mask for a continuous part.
        """
        if type(value) is np.ndarray and value.dtype == np.bool_ and value.shape == (*agents, self.size):
            return value  # the common, fast case
        return self._root.read(value, agents, what)


class _Heads:
    """Reads the mask of a part without parts."""

    def __init__(self, nvec: Sequence[int]) -> None:
        self.nvec, self.size = tuple(nvec), sum(nvec)
        self._equal = len(set(nvec)) == 1

    def read(self, value: Any, agents: tuple[int, ...], what: str) -> Array:
        wanted = (*agents, self.size)
        if isinstance(value, (tuple, list)) and len(value) == len(self.nvec) > 1 and not _flat(value):
            heads = [_Heads((n,)) for n in self.nvec]
            if isinstance(value, tuple) or _depth(value[0]) == len(wanted):
                masks = [
                    head.read(v, agents, f"{what}[{i}]") for i, (head, v) in enumerate(zip(heads, value))
                ]
                return np.concatenate(masks, -1)
        array = _array(value, what)
        if array is None:
            raise FieldError(f"{what} has {len(value)} parts, expected {_expected(wanted, self.nvec)}")
        if self._equal and array.shape == (*agents, len(self.nvec), self.nvec[0]):
            array = array.reshape(wanted)
        return checked(array, wanted, self.nvec, what)


class _Numbers:
    """Refuses a mask for a continuous part."""

    size = 0

    def read(self, value: Any, agents: tuple[int, ...], what: str) -> Array:
        if value is not None:
            raise FieldError(
                f"{what} masks a continuous part, which has no choices; give None, or leave it out"
            )
        return np.ones((*agents, 0), np.bool_)


class _Parts:
    """Reads the mask of a Dict or Tuple space."""

    def __init__(self, parts: Iterable[tuple[Any, spaces.Space[Any]]]) -> None:
        self.parts: dict[Any, Node] = {key: _node(space) for key, space in parts}
        self.size: int = sum(part.size for part in self.parts.values())

    def read(self, value: Any, agents: tuple[int, ...], what: str) -> Array:
        given = self._by_key(value, agents, what)
        if not isinstance(given, dict):
            return checked(given, (*agents, self.size), (), what)
        found = []
        for key, part in self.parts.items():
            mask, inner = given.get(key), f"{what}[{key!r}]"
            if mask is None and part.size:
                if key not in given:
                    raise FieldError(
                        f"{inner} is missing: give a mask, or None if all of its choices are legal"
                    )
                found.append(np.ones((*agents, part.size), np.bool_))
            else:
                found.append(part.read(mask, agents, inner))
        return np.concatenate(found, -1)

    def _by_key(self, value: Any, agents: tuple[int, ...], what: str) -> dict[Any, Any] | Array:
        """Returns the masks of the parts by key, or the array of all of them."""
        known = ", ".join(map(repr, self.parts))
        if isinstance(value, Mapping):
            for key in value:
                if key not in self.parts:
                    raise FieldError(f"{what} has the part {key!r}, but the actions have {known}")
            return dict(value)
        array = None if isinstance(value, tuple) and not _flat(value) else _array(value, what)
        if array is not None:
            return array
        if len(value) != len(self.parts):
            raise FieldError(
                f"{what} has {len(value)} parts, expected {len(self.parts)}: a mask, or None, for each of {known}"
            )
        return dict(zip(self.parts, value))


Node = _Heads | _Numbers | _Parts


def _node(space: spaces.Space[Any]) -> Node:
    if isinstance(space, spaces.Dict):
        return _Parts(space.spaces.items())
    if is_nested(space):
        return _Parts(enumerate(space.spaces))  # type: ignore[attr-defined]
    nvec = leaf_spec(space).nvec
    return _Heads(nvec) if nvec else _Numbers()


def _flat(value: Sequence[Any]) -> bool:
    return all(isinstance(entry, (bool, int, float, np.generic)) for entry in value)


def _depth(value: Any) -> int:
    """Returns the number of axes of a list or array, along its first entries."""
    depth = 0
    while isinstance(value, (tuple, list)) and value:
        value, depth = value[0], depth + 1
    return depth + np.ndim(value)


def _array(value: Any, what: str) -> Array | None:
    """Converts to an array of numbers; None for a list or tuple of parts that differ in shape."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        if isinstance(value, (tuple, list)):
            return None
        raise FieldError(f"{what} cannot be converted to an array ({error})") from None
    if array.dtype.kind == "O" and isinstance(value, (tuple, list)) and not _flat(value):
        return None
    if array.dtype.kind not in "biuf":
        raise FieldError(f"{what} is a {type(value).__name__}, expected an array of bool")
    return array


def checked(array: Array, wanted: tuple[int, ...], nvec: Sequence[int], what: str) -> Array:
    """Returns a mask as bool. Raises FieldError for another shape or dtype."""
    if array.shape != wanted:
        raise FieldError(f"{what} has shape {list(array.shape)}, expected {_expected(wanted, nvec)}")
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind not in "iu" or not ((array == 0) | (array == 1)).all():
        raise FieldError(f"{what} is {array.dtype} {_short(array)}, expected bool, or whole numbers 0 and 1")
    return array.astype(np.bool_)


def _short(array: Array) -> str:
    text = str(array.tolist())
    return text if len(text) <= 80 else text[:77] + "…"


def _expected(wanted: tuple[int, ...], nvec: Sequence[int]) -> str:
    heads = f" ({' + '.join(map(str, nvec))})" if 1 < len(nvec) <= 8 else ""
    return f"{list(wanted)}: one entry for each choice{heads}"
