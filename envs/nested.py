"""Walks Dict and Tuple spaces of Gymnasium, nested: the parts without parts, in the space's order.

    for path, leaf in leaves(space): …           # path: the keys that lead to it, () for a space without parts
    joined(space, iter(values).__next__)         # the dict or tuple whose parts are these values

Place in the flow: observations (spaces.py), actions/ and compat/gymnasium_vector.py take spaces apart with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gymnasium import spaces

Path = tuple[Any, ...]


def is_nested(space: spaces.Space[Any]) -> bool:
    """Returns whether the space's values are dicts or tuples of others'."""
    return isinstance(space, (spaces.Dict, spaces.Tuple))


def leaves(space: spaces.Space[Any], path: Path = ()) -> Iterator[tuple[Path, spaces.Space[Any]]]:
    """Yields (path, space) of each part that has no parts itself."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from leaves(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from leaves(part, (*path, index))
    else:
        yield path, space


def joined(space: spaces.Space[Any], take: Callable[[], Any]) -> Any:
    """Returns a value of the space whose parts `take` gives, in the order of `leaves`."""
    if isinstance(space, spaces.Dict):
        return {key: joined(part, take) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(joined(part, take) for part in space.spaces)
    return take()
