"""Joins the many small arrays of a state: a call then passes few, which costs the host less.

pack = Pack(jax.eval_shape(begin, keys)[1])
arrays = pack.join(state)            # one [N, W] for each dtype of small arrays, and the large ones as they are
state = pack.split(arrays)
"""

from __future__ import annotations

from math import prod
from typing import Any

import jax
import jax.numpy as jnp

SMALL = 256
"""Numbers: arrays of at most as many for each environment are joined."""


class Pack:
    """Joins and splits trees of arrays [N, …] of the shapes given."""

    def __init__(self, like: Any) -> None:
        leaves, self._tree = jax.tree_util.tree_flatten(like)
        self._shapes = [leaf.shape[1:] for leaf in leaves]
        groups: dict[Any, list[int]] = {}
        for i, leaf in enumerate(leaves):
            own = prod(leaf.shape[1:]) > SMALL or jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
            groups.setdefault(i if own else str(leaf.dtype), []).append(i)
        self._groups = list(groups.values())

    def join(self, tree: Any) -> tuple[Any, ...]:
        """Returns the arrays of a tree, small ones joined."""
        leaves = jax.tree_util.tree_leaves(tree)
        return tuple(self._join([leaves[i] for i in group]) for group in self._groups)

    def _join(self, leaves: list[Any]) -> Any:
        if len(leaves) == 1:
            return leaves[0]
        return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], 1)

    def split(self, arrays: Any) -> Any:
        """Returns the tree that was joined."""
        leaves: list[Any] = [None] * len(self._shapes)
        for group, array in zip(self._groups, arrays):
            at = 0
            for i in group:
                shape = self._shapes[i]
                if len(group) == 1:
                    leaves[i] = array
                    continue
                size = prod(shape)
                leaves[i] = array[:, at : at + size].reshape(len(array), *shape)
                at += size
        return self._tree.unflatten(leaves)
