"""Turns any Gymnasium space into one that a PufferEnv can have, and its values into rows.

observation space                            emulated
Box                                          as it is
leaves of one dtype                          Box [size] of this dtype, the leaves one after another
leaves of several dtypes                     Box [size] uint8: the bytes of an aligned struct with a field for each leaf

A Dict's fields have its keys' names, a Tuple's are f0, f1, …; Discrete and MultiDiscrete are int32.

action space                                 emulated
Box; Discrete, MultiDiscrete that count from 0   as they are
others without a Box in them                 MultiDiscrete, a head for each choice; MultiBinary's have two choices each

PufferLib 3 differs: it makes Discrete observations a Box of shape (0,) and MultiBinary(3) actions MultiDiscrete([3]).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from metta_fast.compat.pufferlib.errors import APIUsageError
from metta_fast.contracts.env import Array
from metta_fast.envs.actions import ActionDecoder, action_spec
from metta_fast.envs.nested import leaves

NUMBERS = "biuf"
"""Kinds of dtypes that a leaf may have."""
LARGEST = int(np.iinfo(np.int32).max)


def dtype_from_space(space: spaces.Space[Any]) -> np.dtype:
    """Returns the dtype of a value: for Dict and Tuple an aligned struct.

    Raises:
        APIUsageError: a part that is not a Box, Discrete, MultiDiscrete or MultiBinary.
    """
    if isinstance(space, spaces.Dict):
        fields = [(str(key), dtype_from_space(part)) for key, part in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        fields = [(f"f{i}", dtype_from_space(part)) for i, part in enumerate(space.spaces)]
    elif isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        last = np.asarray(space.start + (space.n if isinstance(space, spaces.Discrete) else space.nvec)) - 1
        if (last > LARGEST).any() or (np.asarray(space.start) < -LARGEST).any():
            raise APIUsageError(f"{space}: its numbers do not fit in int32")
        return np.dtype((np.int32, space.shape))
    elif isinstance(space, (spaces.Box, spaces.MultiBinary)) and np.dtype(space.dtype).kind in NUMBERS:
        return np.dtype((space.dtype, space.shape))
    else:
        raise APIUsageError(
            f"{space}: expected Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them; wrap the "
            "environment"
        )
    if not fields:
        raise APIUsageError(f"{space} is empty: there is nothing to see or choose")
    return np.dtype(fields, align=True)


def flatten_space(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """Returns the parts that have no parts, in order."""
    return [leaf for _, leaf in leaves(space)]


def get_dtype_bounds(dtype: Any) -> tuple[Any, Any]:
    """Returns the bounds of an emulated Box of this dtype: those of float32 at most, which Gymnasium takes."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    if dtype.kind == "f":
        limits = np.finfo(dtype if dtype.itemsize < 4 else np.float32)
        return float(limits.min), float(limits.max)
    raise APIUsageError(f"{dtype}: expected numbers or bools")


def emulate_observation_space(space: spaces.Space[Any]) -> tuple[spaces.Box, np.dtype]:
    """Returns the Box that stands for an observation space, and the dtype of its values."""
    struct = dtype_from_space(space)
    if isinstance(space, spaces.Box):
        return space, struct
    kinds = {dtype_from_space(leaf).base for leaf in flatten_space(space)}
    dtype = kinds.pop() if len(kinds) == 1 else np.dtype(np.uint8)
    low, high = get_dtype_bounds(dtype)
    size = struct.itemsize // dtype.itemsize
    return spaces.Box(low, high, (size,), dtype.type), struct


def emulate_action_space(space: spaces.Space[Any]) -> tuple[spaces.Space[Any], Any]:
    """Returns the space that stands for an action space, and the dtype of its values."""
    if isinstance(space, spaces.Box):
        return space, space.dtype
    if _counts_from_0(space):
        return space, np.int32
    parts = flatten_space(space)
    if any(isinstance(part, spaces.Box) for part in parts):
        raise APIUsageError(
            f"action space {space}: a Box among other actions has no place in PufferLib's interface; metta_fast takes "
            "such an environment as it is, env=package.module:function"
        )
    dtype = dtype_from_space(space)
    return spaces.MultiDiscrete(list(action_spec(space).nvec)), dtype


def _counts_from_0(space: spaces.Space[Any]) -> bool:
    if isinstance(space, spaces.Discrete):
        return int(space.start) == 0
    return isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1 and not space.start.any()


class Rows:
    """Writes nested observations to the rows of emulated ones.

    Args:
        observations: [n, size], of emulate_observation_space.
    """

    def __init__(self, space: spaces.Space[Any], struct: np.dtype, observations: Array) -> None:
        n = len(observations)
        if isinstance(space, (spaces.Dict, spaces.Tuple)):
            fields = observations.view(struct)[:, 0]
        else:
            fields = observations.reshape(n, *struct.shape)
        self._leaves = [(path, _field(fields, path)) for path, _ in leaves(space)]

    def write(self, row: int, value: Any) -> None:
        """Writes agent `row`'s observation."""
        for path, field in self._leaves:
            part = value
            for key in path:
                part = part[key]
            field[row] = part


def _field(struct: Array, path: tuple[Any, ...]) -> Array:
    """Returns the leaf at `path` of all agents, [n, *shape]."""
    for key in path:
        struct = struct[f"f{key}" if isinstance(key, int) else str(key)]
    return struct


class Actions:
    """Turns rows of an emulated action space into actions of the environment's."""

    def __init__(self, space: spaces.Space[Any], emulated: bool) -> None:
        self._decoder = ActionDecoder(space) if emulated else None
        self._one = isinstance(space, spaces.Discrete)

    def decode(self, row: Any) -> Any:
        """Returns one agent's action. A row that is no array is an action already."""
        if self._decoder is not None:
            return self._decoder.each(np.asarray(row).reshape(1, -1))[0]
        if self._one and isinstance(row, np.ndarray):
            return row.reshape(-1)[0]
        return row
