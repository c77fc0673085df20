"""Converts Gymnasium spaces to leaves and action rows, for python_env.py.

observation space                     leaf
Box                                   as it is, dtype kept (shape () becomes (1,)); uint8 of 24 × 24 pixels or more
                                      with 1, 3 or 4 channels is an image, other uint8 are symbols
Discrete(n), MultiDiscrete            uint8 one-hot [n], [sum of n]; `start` is subtracted
MultiBinary                           int8 as it is
Dict, Tuple (nested)                  leaves "key", "key/inner", "0", "1/key"; by name, in sorted order

action space                          row
Discrete(n, start=k)                  one head of n; the environment gets k … k+n−1
MultiDiscrete                         one head per entry, each with its start
MultiBinary(n)                        n heads of 2
Box                                   float32 [size]; the environment gets its own shape and dtype
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from metta_fast.contracts.env import ActionSpec, Array, Leaf
from metta_fast.contracts.errors import UserError

CHANNELS = (1, 3, 4)
"""Sizes of the axis that is an image's channels: grey, colour, four (colour with depth, or a stack of grey)."""
LEAST_PIXELS = 24
"""Smallest side of an array that counts as an image, unless the environment sets its kind."""


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    """Returns the axis of an image's channels, the last possible one, or None."""
    if len(shape) != 3:
        return None
    return next((axis for axis in (2, 0, 1) if shape[axis] in CHANNELS), 2)


def _is_image(shape: tuple[int, ...]) -> bool:
    """Returns whether uint8 numbers of this shape are pixels: two long axes and a short one."""
    short = [n for n in shape if n in CHANNELS]
    return len(shape) == 3 and len(short) == 1 and sorted(shape)[1] >= LEAST_PIXELS


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
    kind: str = ""
    """The kind set by the environment (metta_fast.contracts.env.KINDS); empty: chosen by shape and dtype."""

    @property
    def leaf(self) -> Leaf:
        if self.nvec:
            return Leaf((sum(self.nvec),), "uint8")
        shape, axis = self.shape or (1,), _channel_axis(self.shape)
        if self.kind == "image" or (not self.kind and self.dtype == np.uint8 and _is_image(self.shape)):
            return Leaf(shape, self.dtype.name, "image", axis)
        return Leaf(shape, self.dtype.name, self.kind)

    def view(self, rows: Array, agents: tuple[int, ...]) -> Array:
        """Returns a view of one environment's rows, [n, *leaf.shape], for `write`. agents: () or (n,)."""
        return rows.reshape((*agents, *((sum(self.nvec),) if self.nvec else self.shape)))

    def write(self, obs: Any, to: Array, agents: tuple[int, ...]) -> None:
        """Writes the leaf's value in obs to a view. Raises FieldError."""
        value = obs
        for key in self.path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                raise FieldError(
                    f"observation {self.name!r}: the space has it, the environment did not give it"
                ) from None
        value = np.asarray(value)
        if value.dtype == self.dtype and value.shape == to.shape and not self.nvec:  # the common, fast case
            to[...] = value
            return
        if value.shape != (*agents, *self.shape):
            raise FieldError(
                f"observation {self.name!r} has shape {value.shape}, expected {(*agents, *self.shape)}"
            )
        if self.nvec:
            self._one_hot(value, to)
            return
        if value.dtype != self.dtype:
            raise FieldError(
                f"observation {self.name!r} has dtype {value.dtype}, its space says {self.dtype}: cast it in "
                "the environment, or declare the space with the dtype that it gives"
            )
        to[...] = value

    def _one_hot(self, value: Array, to: Array) -> None:
        if value.dtype.kind not in "iu":
            raise FieldError(f"observation {self.name!r} has dtype {value.dtype}, expected whole numbers")
        index = value.astype(np.int64).reshape(-1, len(self.nvec)) - self.start
        if (index < 0).any() or (index >= self.nvec).any():
            raise FieldError(f"observation {self.name!r} is {value.tolist()}, outside its space")
        index += np.cumsum((0, *self.nvec[:-1]))
        flat = to.reshape(len(index), -1)
        flat[...] = 0
        np.put_along_axis(flat, index, 1, axis=1)


def observation_parts(space: spaces.Space[Any]) -> tuple[Part, ...]:
    """Returns all leaves of an observation space, sorted by name. Raises UserError for an unsupported space."""
    parts = sorted(_parts(space, ()), key=lambda part: part.name)
    names = [part.name for part in parts]
    if len(set(names)) != len(names):
        raise UserError(f"observation leaves {names} share a name: avoid '/' in the keys of Dict spaces")
    return tuple(parts)


def _parts(space: spaces.Space[Any], path: tuple[Any, ...]) -> Iterator[Part]:
    name = "/".join(str(key) for key in path) or "obs"
    if isinstance(space, spaces.Dict):
        for key in space.spaces:
            yield from _parts(space[key], (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            yield from _parts(inner, (*path, index))
    elif isinstance(space, spaces.Discrete):
        yield Part(name, path, (), np.dtype(np.int64), (int(space.n),), (int(space.start),))
    elif isinstance(space, spaces.MultiDiscrete):
        yield Part(
            name, path, space.nvec.shape, np.dtype(np.int64), _numbers(space.nvec), _numbers(space.start)
        )
    elif (
        isinstance(space, (spaces.Box, spaces.MultiBinary))
        and space.dtype is not None
        and space.dtype.kind in "biuf"
    ):
        yield Part(name, path, tuple(space.shape or ()), np.dtype(space.dtype))
    else:
        raise UserError(
            f"observation {name!r} is of {space}: give Box, Discrete, MultiDiscrete, MultiBinary or a "
            "Dict or Tuple of them (wrap the environment)"
        )


def action_spec(space: spaces.Space[Any]) -> ActionSpec:
    """Returns the spec of one agent's action space. Raises UserError for an unsupported space."""
    if isinstance(space, spaces.Discrete):
        return ActionSpec("discrete", nvec=(int(space.n),), start=(int(space.start),))
    if isinstance(space, spaces.MultiDiscrete):
        return ActionSpec("discrete", nvec=_numbers(space.nvec), start=_numbers(space.start))
    if isinstance(space, spaces.MultiBinary):
        heads = int(np.prod(space.shape))
        return ActionSpec("discrete", nvec=(2,) * heads, start=(0,) * heads)
    if isinstance(space, spaces.Box):
        return ActionSpec(
            "box",
            low=tuple(space.low.astype(float).reshape(-1).tolist()),
            high=tuple(space.high.astype(float).reshape(-1).tolist()),
        )
    raise UserError(
        f"action space {space}: expected Discrete, MultiDiscrete, MultiBinary or Box (wrap the environment)"
    )


def decode_action(space: spaces.Space[Any], spec: ActionSpec, row: Array) -> Any:
    """Converts one agent's row [width] to an action in the environment's space; Discrete: an int."""
    action = decode_actions(space, spec, row[None])[0]
    return int(action) if isinstance(space, spaces.Discrete) else action


def decode_actions(space: spaces.Space[Any], spec: ActionSpec, rows: Array) -> list[Any]:
    """Converts the rows [n, width] of n environments. The actions share no memory with the rows.

    Discrete actions are scalars of the space's dtype, which the space checks faster than an int.
    """
    if isinstance(space, spaces.Discrete):
        return list(rows[:, 0].astype(space.dtype) + spec.start[0])
    if isinstance(space, spaces.MultiDiscrete):
        rows = rows + space.start.reshape(-1)
    values = rows.astype(space.dtype).reshape(len(rows), *(space.shape or ()))
    return [values[i, ...] for i in range(len(values))]


def _numbers(array: Array) -> tuple[int, ...]:
    return tuple(int(x) for x in np.asarray(array).reshape(-1))
