"""Writes short loops of a JAX function out, so that a GPU runs few large kernels instead of many small ones.

    step = unrolled(step)           # the same function, for jax.jit

XLA runs each operation of a loop's body as a kernel of its own, once for each pass; operations that follow each other
without a loop become one kernel. Environments loop over a handful of monsters or arrows, where a kernel's start takes
longer than its work. Only `scan` (and `fori_loop` of fixed bounds) is written out: what it computes stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax

try:
    from jax.extend.core import jaxpr_as_fun
except ImportError:  # before jax 0.4.36
    from jax.core import jaxpr_as_fun  # type: ignore[attr-defined, no-redef]

PASSES = 32
"""Loops of more passes stay loops."""
SIZE = 3000
"""Operations: a loop that would become more stays a loop, so that compiling takes no longer."""


def unrolled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function with its short loops written out, as it is traced."""

    def traced(*arguments: Any) -> Any:
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        found = jaxpr_as_fun(_in(closed))(*jax.tree_util.tree_leaves(arguments))
        return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shape), found)

    return traced


def operations(function: Callable[..., Any], *arguments: Any) -> int:
    """Returns how many operations a function runs, those of a loop once for each pass."""
    return _size(jax.make_jaxpr(function)(*arguments).jaxpr, loops=True)


def _in(part: Any) -> Any:
    """Returns a jaxpr, closed or not, or an equation's parameter with the loops in it written out."""
    if isinstance(part, (tuple, list)):
        return type(part)(_in(one) for one in part) if any(map(_is_jaxpr, part)) else part
    if not _is_jaxpr(part):
        return part
    if (inside := getattr(part, "jaxpr", part)) is not part:  # closed: before jax 0.11 a class of its own
        return part.replace(jaxpr=_in(inside))
    equations = []
    for equation in part.eqns:
        params = {name: _in(value) for name, value in equation.params.items()}
        if equation.primitive.name == "scan":
            passes = params["length"]
            if passes <= PASSES and passes * _size(params["jaxpr"].jaxpr, loops=False) <= SIZE:
                params["unroll"] = max(1, passes)
        equations.append(equation.replace(params=params))
    return part.replace(eqns=equations)


def _is_jaxpr(part: Any) -> bool:
    return hasattr(part, "jaxpr") or hasattr(part, "eqns")


def _size(jaxpr: Any, *, loops: bool) -> int:
    """Returns the number of operations. loops: each pass of every loop counts; False: only of those written out."""
    total = 0
    for equation in jaxpr.eqns:
        inner = [_size(getattr(one, "jaxpr", one), loops=loops) for one in _parts(equation)]
        passes = 1
        if equation.primitive.name == "scan":
            passes = equation.params["length"] if loops else equation.params["unroll"]
        total += passes * sum(inner) if inner else 1
    return total


def _parts(equation: Any) -> Iterator[Any]:
    """Yields the functions that an equation calls."""
    for value in equation.params.values():
        for one in value if isinstance(value, (tuple, list)) else (value,):
            if _is_jaxpr(one):
                yield one
