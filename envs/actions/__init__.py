"""Converts a policy's action rows to actions of a Gymnasium space, for python_env.py. Each satisfies `space.contains`.

    spec = action_spec(space)                  # for the policy: heads, bounds, or both
    decoder = ActionDecoder(space)
    actions = decoder.decode(rows)             # [n, *space.shape] in the space's dtype; each(rows): one by one

Dict and Tuple spaces, nested, are one row: the choices of all their parts, then the numbers of all their Boxes, in the
space's order. Both kinds together are "mixed" actions. What each part gets of a row: leaf.py.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from gymnasium import spaces

from metta_fast.contracts.env import ActionSpec, Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.actions.leaf import LeafDecoder, leaf_spec
from metta_fast.envs.nested import is_nested, joined, leaves


def action_spec(space: spaces.Space[Any]) -> ActionSpec:
    """Returns the spec of one agent's action space. Raises UserError for an unsupported space."""
    parts = [leaf_spec(leaf) for _, leaf in leaves(space)]
    if not parts:
        raise UserError(f"action space {space} is empty: there is nothing to choose")
    nvec, start, low, high = (
        tuple(chain.from_iterable(getattr(part, name) for part in parts))
        for name in ("nvec", "start", "low", "high")
    )
    kind = "discrete" if not low else "mixed" if nvec else "box"
    return ActionSpec(kind, nvec=nvec, start=start, low=low, high=high)


class ActionDecoder:
    """Decodes rows of one agent each. The actions share no memory with the rows."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        found = [leaf for _, leaf in leaves(space)]
        parts = [leaf_spec(leaf) for leaf in found]
        heads, numbers = 0, sum(len(part.nvec) for part in parts)
        self._leaves: list[tuple[LeafDecoder, slice]] = []
        """Each part, and its columns of a row."""
        for leaf, part in zip(found, parts):
            begin = heads if part.kind == "discrete" else numbers
            self._leaves.append((LeafDecoder(leaf), slice(begin, begin + part.width)))
            heads, numbers = heads + len(part.nvec), numbers + len(part.low)
        self._whole = None if is_nested(space) else self._leaves[0][0]

    def decode(self, rows: Array) -> Any:
        """Converts rows [n, width] to actions [n, *space.shape]; for Dict and Tuple, a dict or tuple of such arrays."""
        if self._whole is not None:
            return self._whole.decode(rows)
        found = iter([decoder.decode(rows[:, columns]) for decoder, columns in self._leaves])
        return joined(self.space, lambda: next(found))

    def each(self, rows: Array) -> list[Any]:
        """Converts rows [n, width] to n actions. Discrete ones are scalars of the space's dtype, which the space checks
        faster than an int."""
        if self._whole is not None:
            return self._whole.each(rows)
        found = [decoder.each(rows[:, columns]) for decoder, columns in self._leaves]
        return [joined(self.space, iter(parts).__next__) for parts in zip(*found)]


def decode_action(space: spaces.Space[Any], spec: ActionSpec, row: Array) -> Any:
    """Converts one agent's row [width] to an action in the environment's space; Discrete: an int."""
    action = decode_actions(space, spec, row[None])[0]
    return int(action) if isinstance(space, spaces.Discrete) else action


def decode_actions(space: spaces.Space[Any], spec: ActionSpec, rows: Array) -> list[Any]:
    """Converts the rows [n, width] of n environments; `spec` is the space's own."""
    return ActionDecoder(space).each(rows)
