"""Converts Gymnasium observation spaces to leaves, for python_env.py.

observation space                     leaf
Box                                   as it is, dtype kept (shape () becomes (1,)); its kind: observed/leaf_kinds.py
Discrete(n), MultiDiscrete            uint8 one-hot [n], [sum of n]; `start` is subtracted
MultiBinary                           int8 as it is
Dict, Tuple (nested)                  leaves "key", "key/inner", "0", "1/key"; by name, in sorted order

Actions: actions/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from metta_fast.contracts.env import Array, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.envs.actions import action_spec, decode_action, decode_actions
from metta_fast.envs.actions.leaf import whole_numbers
from metta_fast.envs.nested import leaves
from metta_fast.envs.observed.leaf_kinds import leaf_of, symbol_bounds

__all__ = ["FieldError", "Part", "action_spec", "decode_action", "decode_actions", "observation_parts"]

DTYPES = frozenset(
    (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    )
)
"""Names of the dtypes that a leaf may have: torch has no others."""


class FieldError(ValueError):
    """Reports a value that does not fit its space; the message names the field."""


@dataclass(frozen=True)
class Part:
    """Finds one leaf in the environment's observation, and writes it into its row."""

    name: str
    path: tuple[Any, ...]
    shape: tuple[int, ...]
    """Shape of the environment's value for one agent."""
    dtype: np.dtype
    nvec: tuple[int, ...] = ()
    """One-hot: sizes of the parts; empty: written unchanged."""
    start: tuple[int, ...] = ()
    binary: bool = False
    """MultiBinary: zeros and ones of any dtype."""
    bounds: tuple[tuple[int, int], ...] = ()
    """Whole numbers that may be symbols: (lowest, highest) value of each channel (observed/leaf_kinds.py)."""
    kind: str = ""
    """Its kind (metta_fast.contracts.env.KINDS); empty: chosen by shape and dtype."""
    why: str = ""
    """Who chose the kind; empty: shape and dtype."""

    @property
    def leaf(self) -> Leaf:
        return leaf_of(self)[0]

    @property
    def reason(self) -> str:
        """Returns why the leaf has its kind, in words."""
        return self.why or leaf_of(self)[1]

    def view(self, rows: Array, agents: tuple[int, ...]) -> Array:
        """Returns a view of one environment's rows, [n, *leaf.shape], for `write`. agents: () or (n,)."""
        return rows.reshape((*agents, *((sum(self.nvec),) if self.nvec else self.shape)))

    def find(self, obs: Any) -> Any:
        """Returns the leaf's value in obs. Raises FieldError."""
        for key in self.path:
            try:
                obs = obs[key]
            except (KeyError, IndexError, TypeError):
                raise FieldError(
                    f"observation {self.name!r}: the space has it, the environment did not give it"
                ) from None
        return obs

    def write(self, obs: Any, to: Array, agents: tuple[int, ...]) -> None:
        """Writes the leaf's value in obs to a view: whatever the space accepts, in the space's dtype. Raises
        FieldError."""
        value = self.find(obs)
        if (
            isinstance(value, np.ndarray)
            and value.dtype == self.dtype
            and value.shape == to.shape
            and not self.nvec
        ):  # the common, fast case
            to[...] = value
            return
        value = self._array(value)
        if value.shape != (*agents, *self.shape):
            raise FieldError(
                f"observation {self.name!r} has shape {value.shape}, expected {(*agents, *self.shape)}"
            )
        if self.nvec:
            self._one_hot(value, to)
            return
        if self.binary:
            if not ((value == 0) | (value == 1)).all():
                raise FieldError(
                    f"observation {self.name!r} is {value.tolist()}, outside its space of 0 and 1"
                )
        elif not np.can_cast(value.dtype, self.dtype):
            raise FieldError(
                f"observation {self.name!r} has dtype {value.dtype}, its space says {self.dtype}: cast it in "
                "the environment, or declare the space with the dtype that it gives"
            )
        to[...] = value

    def _array(self, value: Any) -> Array:
        """Converts numbers and lists as the space does. Raises FieldError."""
        if isinstance(value, np.ndarray):
            return value
        try:
            array = np.asarray(value, None if self.nvec or self.binary else self.dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise FieldError(
                f"observation {self.name!r} is a {type(value).__name__} that cannot be converted to an array of "
                f"{self.dtype} ({error})"
            ) from None
        if array.dtype.kind not in "biuf":
            raise FieldError(f"observation {self.name!r} is {value!r}, expected numbers")
        return array

    def _one_hot(self, value: Array, to: Array) -> None:
        if value.dtype.kind not in "biu":
            raise FieldError(f"observation {self.name!r} has dtype {value.dtype}, expected whole numbers")
        wide = np.uint64 if value.dtype.kind == "u" else np.int64
        start = np.array([first % 2**64 for first in self.start], np.uint64)
        index = (
            value.astype(wide).view(np.uint64).reshape(-1, len(self.nvec)) - start
        )  # below start: it wraps
        if (index >= np.array(self.nvec, np.uint64)).any():
            raise FieldError(f"observation {self.name!r} is {value.tolist()}, outside its space")
        places = index.astype(np.int64) + np.cumsum((0, *self.nvec[:-1]))
        flat = to.reshape(len(places), -1)
        flat[...] = 0
        np.put_along_axis(flat, places, 1, axis=1)


def observation_parts(space: spaces.Space[Any]) -> tuple[Part, ...]:
    """Returns all leaves of an observation space, sorted by name. Raises UserError for an unsupported space."""
    parts = sorted((_part(leaf, path) for path, leaf in leaves(space)), key=lambda part: part.name)
    names = [part.name for part in parts]
    if not parts:
        raise UserError(f"the observation space {space} is empty: the policy would see nothing")
    if len(set(names)) != len(names):
        raise UserError(f"observation leaves {names} share a name: avoid '/' in the keys of Dict spaces")
    return tuple(parts)


def _part(space: spaces.Space[Any], path: tuple[Any, ...]) -> Part:
    name = "/".join(str(key) for key in path) or "obs"
    shape = tuple(space.shape or ())
    if 0 in shape:
        raise UserError(
            f"observation {name!r} has shape {shape}, which holds no numbers: leave it out of the observation space"
        )
    if isinstance(space, spaces.Discrete):
        return Part(name, path, (), np.dtype(np.int64), (int(space.n),), (int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        return Part(
            name,
            path,
            space.nvec.shape,
            np.dtype(np.int64),
            whole_numbers(space.nvec),
            whole_numbers(space.start),
        )
    if isinstance(space, spaces.MultiBinary):
        return Part(name, path, shape, np.dtype(space.dtype), binary=True)
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).name in DTYPES:
        return Part(name, path, shape, np.dtype(space.dtype), bounds=symbol_bounds(space))
    raise UserError(
        f"observation {name!r} is of {space}: give Box ({', '.join(sorted(DTYPES))}), Discrete, MultiDiscrete, "
        f"MultiBinary or a Dict or Tuple of them (wrap the environment{_or_drop(path)})"
    )


def _or_drop(path: tuple[Any, ...]) -> str:
    """Returns the other cure for a leaf of a Dict."""
    named = path and all(isinstance(key, str) for key in path)
    return f", or leave it out with env.drop=[{'/'.join(path)}]" if named else ""
