"""Chooses what the leaves of a Python environment's observation hold: pixels, symbols, or plain numbers.

    env.leaf_kinds.NAME=image|symbols|flat      typed, first of all; a leaf within a leaf by its path, a/b
    metadata["kinds"] = {NAME: …}               the environment's own word: image, symbols, flat (vector) or tokens
    image       uint8, three axes: 1, 3 or 4 channels or a stack of up to four such, and sides from LEAST_PIXELS on
    symbols     whole numbers in at most 256 values a channel, two or three axes, sides under LEAST_PIXELS
    flat        all others

Place in the flow: python_env.py asks for it when it turns a space into leaves; --explain prints the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from gymnasium import spaces

from metta_fast.config.keys import did_you_mean, shown
from metta_fast.contracts.env import MOST_SYMBOLS, Leaf
from metta_fast.contracts.errors import UserError

CHANNELS = frozenset(channels * stack for channels in (1, 3, 4) for stack in (1, 2, 3, 4))
"""Sizes of the axis that is an image's channels: grey, colour, four (colour with depth), and stacks of them."""
LEAST_PIXELS = 24
"""Smallest side of an array that counts as an image; whole numbers with smaller sides are symbols."""
TYPED = {"image": "image", "symbols": "symbols", "flat": "vector"}
"""What env.leaf_kinds may say → Leaf.kind."""
DECLARED = {**TYPED, "vector": "vector", "tokens": "tokens"}
"""What metadata["kinds"] may say → Leaf.kind."""


class Part(Protocol):
    """What is known of one leaf of a space (a dataclass: spaces.py has it)."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    @property
    def nvec(self) -> tuple[int, ...]: ...
    @property
    def binary(self) -> bool: ...
    @property
    def bounds(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def kind(self) -> str: ...


P = TypeVar("P", bound=Part)


def leaf_of(part: Part) -> tuple[Leaf, str]:
    """Returns the leaf of a part of the observation, and why shape and dtype give it its kind."""
    if part.nvec:
        return Leaf((sum(part.nvec),), "uint8"), "one-hot vectors of choices"
    kind, why = (part.kind, "") if part.kind else _by_shape(part)
    shape, dtype = part.shape or (1,), part.dtype.name
    if kind == "image":
        return Leaf(shape, dtype, kind, image_axis(part.shape)), why
    if kind == "symbols":
        return Leaf(shape, dtype, kind, symbol_axis(part.shape), part.bounds), why
    return Leaf(shape, dtype, kind), why


def _by_shape(part: Part) -> tuple[str, str]:
    """Returns the kind of a part of which nobody has said what it holds, and the reason."""
    shape, dtype = part.shape, part.dtype
    if dtype.kind not in "iu" or part.binary or len(shape) not in (2, 3):
        return "vector", "no whole numbers in two or three axes"
    if dtype == np.uint8 and is_image(shape):
        return (
            "image",
            f"sides of at least {LEAST_PIXELS} pixels and {shape[image_axis(shape) or 0]} channels",
        )
    axis = symbol_axis(shape)
    if max(size for i, size in enumerate(shape) if i != axis) >= LEAST_PIXELS:
        return "vector", f"no image's channels, and not smaller than {LEAST_PIXELS} a side"
    if any(high - low >= MOST_SYMBOLS for low, high in part.bounds):
        return "vector", f"more than {MOST_SYMBOLS} values, so amounts"
    return "symbols", f"smaller than {LEAST_PIXELS} a side"


def image_axis(shape: tuple[int, ...]) -> int | None:
    """Returns the axis of an image's channels, the last possible one, or None."""
    if len(shape) != 3:
        return None
    return next((axis for axis in (2, 0, 1) if shape[axis] in CHANNELS), 2)


def is_image(shape: tuple[int, ...]) -> bool:
    """Returns whether uint8 numbers of this shape are pixels: two long axes and a short one."""
    short = [n for n in shape if n in CHANNELS]
    return len(shape) == 3 and len(short) == 1 and sorted(shape)[1] >= LEAST_PIXELS


def symbol_axis(shape: tuple[int, ...]) -> int | None:
    """Returns the axis of the channels of symbols: of three axes the first or the last, not one of two equal sides."""
    if len(shape) != 3:
        return None
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return 2 if first == middle else 0
    return 0 if first < last else 2


def symbol_bounds(space: spaces.Box) -> tuple[tuple[int, int], ...]:
    """Returns the (lowest, highest) value of each channel of whole numbers; () for other spaces."""
    if np.dtype(space.dtype).kind not in "iu":
        return ()
    axis = symbol_axis(space.shape)
    rest = tuple(i for i in range(len(space.shape)) if i != axis)
    low, high = np.atleast_1d(space.low.min(rest)), np.atleast_1d(space.high.max(rest))
    return tuple(zip(map(int, low.tolist()), map(int, high.tolist())))


def with_kinds(parts: tuple[P, ...], declared: Any, typed: Mapping[str, Any] | None) -> tuple[P, ...]:
    """Returns the parts, with the kinds that the environment declares and those that were typed.

    Args:
        declared: the environment's `metadata["kinds"]`.
        typed: env.leaf_kinds.

    Raises:
        UserError: no such leaf, no such kind, or one that this leaf cannot have.
    """
    names = [part.name for part in parts]
    if not isinstance(declared, Mapping) or not all(
        k in names and isinstance(v, str) and v in DECLARED for k, v in declared.items()
    ):
        raise UserError(
            f"metadata['kinds'] is {declared!r}: expected {{leaf: kind}} with leaves among {', '.join(names)} and "
            f"kinds among {', '.join(DECLARED)}"
        )
    given = {name: (DECLARED[kind], "the environment declares it") for name, kind in declared.items()}
    for name, kind in (typed or {}).items():
        where = f"env.leaf_kinds.{name}={shown(kind)}"
        if name not in names:
            raise UserError(
                f"{where}: the observation has no such leaf; {did_you_mean(name, names)}it has {', '.join(names)}"
            )
        if not isinstance(kind, str) or kind not in TYPED:
            raise UserError(f"{where}: {did_you_mean(str(kind), TYPED)}expected {', '.join(TYPED)}")
        given[name] = TYPED[kind], "env.leaf_kinds"
    return tuple(
        part if part.name not in given else _with_kind(part, *given[part.name], part.name in (typed or {}))
        for part in parts
    )


def _with_kind(part: P, kind: str, why: str, typed: bool) -> P:
    """Returns the part with this kind. Raises UserError if it cannot have it."""
    shape = "×".join(map(str, part.shape)) or "1"
    leaf = f"observation {part.name!r} ({shape} {part.dtype})"
    where = (
        f"env.leaf_kinds.{part.name}={kind}" if typed else f"metadata['kinds'] says {kind} of {part.name!r}"
    )
    if kind == "symbols" and (part.dtype.kind not in "iu" or part.nvec or part.binary):
        what = (
            "is one-hot already"
            if part.nvec
            else "is zeros and ones"
            if part.binary
            else "holds no whole numbers"
        )
        raise UserError(f"{where}: {leaf} {what}, but symbols are whole numbers; give {_flat(part.name)}")
    if kind == "symbols" and len(part.shape) not in (1, 2, 3):
        raise UserError(
            f"{where}: {leaf} has {len(part.shape)} axes, symbols have 1 to 3; give {_flat(part.name)}"
        )
    if kind == "image" and typed:
        axis = image_axis(part.shape)
        if part.nvec or len(part.shape) not in (2, 3):
            raise UserError(
                f"{where}: {leaf} has {1 if part.nvec else len(part.shape)} axes, an image has height × width, or "
                f"three with its channels; give {_flat(part.name)}"
            )
        if axis is not None and part.shape[axis] not in CHANNELS:
            raise UserError(
                f"{where}: {leaf} has {part.shape[axis]} channels, an image has 1, 3 or 4, or a stack of up to four "
                f"such, first or last; give {_flat(part.name)}"
            )
    return cast("P", replace(cast("Any", part), kind=kind, why=why))


def _flat(name: str) -> str:
    return f"env.leaf_kinds.{name}=flat, which reads plain numbers"
