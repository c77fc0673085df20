"""Provides what the contract's tests share: backends, environments, and playing a tape of actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metta_fast.contracts.env import Rows
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.grid.env import GridFactory
from metta_fast.envs.repeat import repeated
from metta_fast.vector import VectorError, make_vector
from tests.vector.toy_envs import crowd_factory, walk_factory
from tests.vector.toys import ToyFactory


def small_grid(**keys: Any) -> GridFactory:
    """A grid of few steps, which has a GPU engine as well."""
    objects = {"mine_red": 2, "altar": 1, "wall": 1}
    return GridFactory(**{"num_agents": 3, "room_size": [6, 6], "objects": objects, "max_steps": 7, **keys})


BACKENDS = {
    "serial": {"backend": "serial"},
    "threads": {"backend": "threads", "num_threads": 3},
    "workers": {"backend": "workers", "num_workers": 2},
    "workers-uneven": {"backend": "workers", "num_workers": 5, "num_threads": 2},
}
FACTORIES = {
    "counter": lambda: CounterFactory(agents_per_env=2, max_steps=5),
    "toy": lambda: ToyFactory(agents=2),
    "toy-native": lambda: ToyFactory(agents=2, native=True),
    "walk": walk_factory,
    "crowd": crowd_factory,
    "walk-repeated": lambda: repeated(walk_factory(), 3),
    "crowd-repeated": lambda: repeated(crowd_factory(), 2),
    "grid-repeated": lambda: repeated(GridFactory(num_agents=3, room_size=[6, 6], max_steps=7), 3),
    "grid": lambda: small_grid(),
}


def tape_for(spec, length, num_envs, seed=0):
    """Actions int32 [length, num_agents, width]; head 1 of the toy (its naps) stays 0."""
    top = (5, 1) if spec.name == "toy" else spec.action.nvec
    return np.random.default_rng(seed).integers(
        0, top, (length, num_envs * spec.agents_per_env, len(top)), dtype=np.int32
    )


def flat(rows: Rows):
    """A copy of all fields that the environment writes, by name; statistics where they are valid."""
    ends = (rows.terminal | rows.truncation)[:, None]
    return {
        **{f"obs/{k}": v.copy() for k, v in rows.obs.items()},
        **{k: getattr(rows, k).copy() for k in Rows._fields[2:] if k != "stats"},
        "stats": np.where(ends, rows.stats, 0),
    }


def play(vec, tape, *, first=True):
    """One send of every agent per entry of the tape, block by block as they come.

    Returns each field over [len(tape) + 1, num_agents, …] (first=False: the present rows are held already).
    """
    out = [{k: np.zeros_like(v) for k, v in flat(vec.rows).items()} for _ in range(len(tape) + 1)]
    row = [0] * len(vec.blocks)

    def note(block):
        for name, value in flat(block.rows).items():
            out[row[block.index]][name][block.start : block.stop] = value
        if row[block.index] < len(tape):
            vec.send(block, tape[row[block.index], block.start : block.stop])
        row[block.index] += 1

    if not first:
        for block in vec.blocks:
            note(block)
    while min(row) <= len(tape):
        note(vec.recv())
    return {name: np.stack([step[name] for step in out]) for name in out[0]}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert a[name].tobytes() == b[name].tobytes(), (
            f"{name} differs, first at row {_first(a[name], b[name])}"
        )


def _first(a, b):
    return np.argwhere((a != b).reshape(len(a), -1).any(axis=1)).ravel()[:1]


def assert_misuse_raises(vec: Any, other: Any) -> None:
    """What a caller may not do, one after another; all blocks are held afterwards.

    Args:
        vec, other: not reset yet; 3 blocks, actions [n, 2] int32.
    """
    for call in (vec.recv, vec.hold_all, vec.state_dict, lambda: vec.send(vec.blocks[0])):
        with pytest.raises(VectorError):
            call()
    vec.async_reset(0)
    with pytest.raises(VectorError, match="not held"):
        vec.send(vec.blocks[0])
    with pytest.raises(VectorError, match="0 of 3 blocks"):
        vec.state_dict()
    block = vec.recv()
    actions = np.zeros((block.size, 2), np.int32)
    for wrong in (actions[:1], actions[:, :1], np.zeros((block.size, 2, 1), np.int32)):
        with pytest.raises(ValueError, match=r"shape .* expected"):
            vec.send(block, wrong)
    with pytest.raises(TypeError):
        vec.send(block, actions.astype(np.float32))
    vec.send(block, actions.astype(np.int64))
    with pytest.raises(VectorError, match="not held"):
        vec.send(block, actions)
    vec.hold_all()
    other.async_reset(0)
    with pytest.raises(VectorError, match="not held"):
        vec.send(other.recv(), actions)
    with pytest.raises(VectorError, match="no block in flight"):
        vec.recv()


def check_same_bytes(
    vec: Any, factory: Any, tape: Any, expected: Any, state: Any, seed: int, *, on_gpu: bool
) -> None:
    """A vector gives the rows and the state that are expected of a seed and a tape, and its state goes on anywhere.

    Args:
        expected, state: of `play` and `state_dict` by the serial backend.
    """
    half, num_envs = len(tape) // 2, vec.num_envs
    vec.async_reset(seed)
    assert_same(play(vec, tape), expected)
    assert_states_equal(vec.state_dict(), state, on_gpu)
    # again from the start; then on from the middle in a vector with other blocks
    vec.async_reset(seed)
    assert_same(play(vec, tape[:half]), {k: v[: half + 1] for k, v in expected.items()})
    saved = vec.state_dict()
    with make_vector(factory, num_envs, backend="serial", num_blocks=5) as other:
        other.load_state_dict(saved)
        rest = play(other, tape[half:], first=False)
        assert_same(rest, {k: v[half:] for k, v in expected.items()})
        assert_states_equal(other.state_dict(), state, on_gpu)
    # from a state of its own and of another backend, over what it has done meanwhile
    with make_vector(factory, num_envs, backend="threads", num_threads=2, num_blocks=2) as other:
        other.async_reset(seed)
        play(other, tape[:half])
        given = other.state_dict()
    for loaded in (saved, given):
        vec.async_reset(9)
        vec.load_state_dict(loaded)
        assert_same(play(vec, tape[half:], first=False), rest)
        assert_states_equal(vec.state_dict(), state, on_gpu)


def assert_states_equal(a: Any, b: Any, on_gpu: bool = False) -> None:
    """on_gpu: statistics of rows whose episode goes on are not written, and may differ."""
    assert a.keys() == b.keys()
    for key in a:
        if isinstance(a[key], dict):
            assert_states_equal(a[key], b[key], on_gpu)
        elif key == "stats" and on_gpu:
            ends = (a["terminal"] | a["truncation"])[:, None]
            np.testing.assert_equal(np.where(ends, a[key], 0), np.where(ends, b[key], 0))
        else:
            np.testing.assert_equal(a[key], b[key])
