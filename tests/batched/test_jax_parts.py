"""Short loops written out, and states joined: against what they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from metta_fast.envs.batched.in_jax import unroll  # noqa: E402
from metta_fast.envs.batched.in_jax.pack import SMALL, Pack  # noqa: E402
from metta_fast.envs.batched.in_jax.unroll import operations, unrolled  # noqa: E402


def loops(x: Any, far: Any) -> Any:
    """A loop in a loop, one over rows, one in a branch, one of many passes, and one that ends by what it computes."""
    turn = jax.jit(lambda i, y: jax.lax.fori_loop(0, 3, lambda j, z: z * 3 + i * j, y))
    x = jax.lax.fori_loop(0, 5, turn, x)
    x, seen = jax.lax.scan(
        lambda a, b: (a + b, {"a": a, "b": b * 2}), x, jnp.arange(4 * len(x)).reshape(4, -1)
    )
    x = jax.lax.cond(x[0] > 0, lambda y: jax.lax.fori_loop(0, 4, lambda i, z: z - i, y), lambda y: y, x)
    x = jax.lax.fori_loop(0, 100, lambda i, z: z ^ i, x)
    return {"x": jax.lax.while_loop(lambda y: y.sum() < far, lambda y: y + 1, x), **seen}


def scans(function: Any, *arguments: Any) -> int:
    return str(jax.make_jaxpr(function)(*arguments)).count("scan[")


def whiles(function: Any, *arguments: Any) -> int:
    return int(jax.jit(function).lower(*arguments).as_text().count("stablehlo.while"))


def test_loops_written_out_compute_the_same() -> None:
    x, far = jnp.arange(6), jnp.int32(10**6)
    want, found = jax.jit(loops)(x, far), jax.jit(unrolled(loops))(x, far)
    assert jax.tree_util.tree_structure(want) == jax.tree_util.tree_structure(found)
    for one, other in zip(jax.tree_util.tree_leaves(want), jax.tree_util.tree_leaves(found)):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def test_short_loops_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long one and the one without a number of passes stay."""
    x, far = jnp.arange(6), jnp.int32(10**6)
    assert scans(loops, x, far) == 5
    assert whiles(loops, x, far) == 6
    assert whiles(unrolled(loops), x, far) == 2
    monkeypatch.setattr(unroll, "SIZE", 20)  # the loop in a loop becomes larger, the inner one alone does not
    assert whiles(unrolled(loops), x, far) == 3


def test_operations_count_every_pass() -> None:
    assert operations(lambda x: x * 2 + 1, 1.0) == 2
    found = operations(lambda x: jax.lax.fori_loop(0, 50, lambda i, y: y * 2, x), 1.0)
    assert 50 <= found <= 200


def test_states_are_joined_and_split() -> None:
    key = jax.random.split(jax.random.key(0), 3)
    tree = {
        "a": jnp.arange(3), "b": [jnp.arange(6).reshape(3, 2), jnp.ones((3, 2, 2), bool)], "c": jnp.ones(3) / 3,
        "d": jnp.zeros((3, SMALL + 1), jnp.int32), "e": jnp.ones(3, bool), "f": key, "g": jnp.zeros((3, 0)),
    }  # fmt: skip
    pack = Pack(jax.eval_shape(lambda: tree))
    arrays = pack.join(tree)
    assert len(arrays) == 5  # int32, bool, float32, the large one and the keys
    again = pack.split(arrays)
    assert jax.tree_util.tree_structure(again) == jax.tree_util.tree_structure(tree)
    for one, other in zip(jax.tree_util.tree_leaves(tree), jax.tree_util.tree_leaves(again)):
        assert one.dtype == other.dtype
        assert (one == other).all()
