"""Leaves parts of an observation out of what the policy sees (env.drop).

    space = without_leaves(env.observation_space, ["mission"])       # a Dict without this key

Place in the flow: python_env.py asks for it before it turns the space into leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gymnasium import spaces

from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.errors import UserError


def without_leaves(
    space: spaces.Space[Any], names: Sequence[str], if_there: Sequence[str] = ()
) -> spaces.Space[Any]:
    """Returns the space without the leaves or groups of these names.

    Args:
        if_there: more names, of which those that the space lacks are ignored.

    Raises:
        UserError: the space is no Dict, lacks one of `names`, or nothing would be left.
    """
    known = list(_paths(space))
    for name in names:
        if not known:
            raise UserError(
                f"env.drop=[{name}]: the observation is {type(space).__name__}, which has no named leaves"
            )
        if name not in known:
            raise UserError(
                f"env.drop=[{name}]: the observation has no such leaf; {did_you_mean(name, known)}it has "
                f"{', '.join(known)}"
            )
    gone = {*names, *(name for name in if_there if name in known)}
    if not gone:
        return space
    left = _without(space, "", gone)
    if left is None:
        raise UserError(f"env.drop=[{', '.join(names)}] leaves nothing of the observation; keep one leaf")
    return left


def _paths(space: spaces.Space[Any], prefix: str = "") -> Iterator[str]:
    """Yields the names of all entries of a Dict, and of Dicts in it."""
    if isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            yield f"{prefix}{key}"
            yield from _paths(inner, f"{prefix}{key}/")


def _without(space: spaces.Space[Any], prefix: str, gone: set[str]) -> spaces.Space[Any] | None:
    if not isinstance(space, spaces.Dict):
        return space
    left: dict[str, Any] = {}
    for key, inner in space.spaces.items():
        if f"{prefix}{key}" not in gone:
            kept = _without(inner, f"{prefix}{key}/", gone)
            if kept is not None:
                left[key] = kept
    return spaces.Dict(left) if left else None
