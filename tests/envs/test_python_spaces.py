"""Tests that numbers stay inside an environment's spaces, for every kind of space: observed ones, and actions."""

from __future__ import annotations

from itertools import product
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from metta_fast.contracts.vector import WorkerError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.spaces import action_spec, decode_action, decode_actions
from metta_fast.vector import make_vector

DISCRETE = [
    spaces.Discrete(1),
    spaces.Discrete(3),
    spaces.Discrete(3, start=5),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([3, 2], start=[10, -1]),
    spaces.MultiDiscrete([[2, 3], [1, 4]], start=[[0, 1], [2, 3]]),
]
BOX = spaces.Box(-1, 1, (2,), np.float32)


def values_of(space: Any) -> list[Any]:
    """Every value of a Discrete or MultiDiscrete space."""
    if isinstance(space, spaces.Discrete):
        return [int(space.start) + k for k in range(space.n)]
    nvec, start = space.nvec.reshape(-1), space.start.reshape(-1)
    ranges = [range(low, low + n) for low, n in zip(start.tolist(), nvec.tolist())]
    return [np.array(value).reshape(space.shape) for value in product(*ranges)]


class Shows(gymnasium.Env):
    """Shows the given values one after another, the last one for ever."""

    def __init__(self, space: Any, values: list[Any], action_space: Any = None) -> None:
        self.observation_space, self.values = space, list(values)
        self.action_space = action_space or spaces.Discrete(2)
        self.actions: list[Any] = []

    def next(self) -> Any:
        return self.values.pop(0) if len(self.values) > 1 else self.values[0]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.next(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        return self.next(), 0.0, False, False, {}


def shown(space: Any, values: list[Any]) -> np.ndarray:
    """The rows that the values become, [len(values), size]."""
    rows = []
    with make_vector(PythonEnvFactory(lambda _: Shows(space, values)), 1) as vec:
        vec.async_reset(0)
        for _ in values:
            block = vec.recv()
            rows.append(block.rows.obs["obs"][0].copy())
            vec.send(block)
    return np.stack(rows)


@pytest.mark.parametrize("space", DISCRETE, ids=str)
def test_each_value_of_a_space_has_a_row_of_its_own(space: Any) -> None:
    """One after another: a row keeps nothing of the one before."""
    values = values_of(space)
    rows = shown(space, values)
    sizes = [space.n] if isinstance(space, spaces.Discrete) else space.nvec.reshape(-1).tolist()
    for part in np.split(rows, np.cumsum(sizes)[:-1], axis=1):
        assert (part.sum(1) == 1).all()
    assert len({row.tobytes() for row in rows}) == len(values)
    heads = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
    start = np.reshape(space.start, -1)
    chosen = np.stack([head.argmax(1) for head in heads], 1) + start
    assert chosen.tolist() == [np.reshape(value, -1).tolist() for value in values]


@pytest.mark.parametrize("space", DISCRETE, ids=str)
def test_a_value_just_outside_its_space_is_refused(space: Any) -> None:
    first = values_of(space)[0]
    low, sizes = np.reshape(space.start, -1), np.reshape(getattr(space, "nvec", getattr(space, "n", 0)), -1)
    for entry, size in enumerate(sizes.tolist()):
        for wrong in (int(low[entry]) - 1, int(low[entry]) + size):
            value = np.array(first, np.int64).reshape(-1)
            value[entry] = wrong
            given = int(value[0]) if isinstance(space, spaces.Discrete) else value.reshape(space.shape)
            assert not space.contains(given)
            with pytest.raises(WorkerError, match=r"environment 0 gave a wrong value: .*outside its space"):
                shown(space, [given])


@pytest.mark.parametrize("space", [*DISCRETE, spaces.MultiBinary(3), spaces.MultiBinary((2, 2))], ids=str)
def test_every_row_of_actions_is_another_action_of_the_space(space: Any) -> None:
    spec = action_spec(space)
    rows = np.array(list(product(*(range(n) for n in spec.nvec))), np.int32)
    actions = decode_actions(space, spec, rows)
    assert all(space.contains(action) for action in actions)
    assert len({np.asarray(action).tobytes() for action in actions}) == len(rows)
    for row, action in zip(rows, actions):
        np.testing.assert_array_equal(decode_action(space, spec, row), action)
    first = np.reshape(getattr(space, "start", 0), -1)
    np.testing.assert_array_equal(np.reshape(actions[0], -1), np.broadcast_to(first, spec.width))


@pytest.mark.parametrize("space", [spaces.Discrete(3, start=5), spaces.Discrete(3, start=-1)], ids=str)
def test_several_agents_actions_are_inside_their_space(space: Any) -> None:
    given: list[Any] = []

    class Pair:
        num_agents = 2
        observation_space, action_space = BOX, space

        def reset(self, seed: int | None = None) -> Any:
            return np.zeros((2, 2), np.float32), {}

        def step(self, actions: Any) -> Any:
            given.extend(actions[:, 0].tolist())
            no = np.zeros(2, bool)
            return np.zeros((2, 2), np.float32), np.zeros(2), no, no, {}

        def close(self) -> None:
            pass

    with make_vector(PythonEnvFactory(lambda _: Pair()), 1) as vec:
        vec.async_reset(0)
        for row in ([0, 1], [2, 0]):
            vec.send(vec.recv(), np.array(row, np.int32)[:, None])
        vec.recv()
    assert given == [int(space.start) + k for k in (0, 1, 2, 0)]
    assert all(space.contains(action) for action in given)
