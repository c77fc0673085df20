"""Tests that a Python environment's saved state continues as if nothing had happened, at every row of its episodes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.vector import make_vector
from tests.envs.test_python_env import Clock, NextStep, SameStep
from tests.vector.suite import assert_same, flat
from tests.vector.toy_envs import crowd_factory

ROWS = 12
"""Three episodes of a Clock, of four rows each."""


class Kept:
    """Adds a state to a Clock."""

    def state_dict(self) -> dict[str, Any]:
        return {"t": self.t, "episode": self.episode, "over": getattr(self, "over", False)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.t, self.episode, self.over = state["t"], state["episode"], state["over"]


class KeptClock(Kept, Clock):
    pass


class KeptSameStep(Kept, SameStep):
    pass


class KeptNextStep(Kept, NextStep):
    pass


def go_on(vec: Any, rows: int) -> list[dict[str, Any]]:
    """Sends so many actions; the rows before each."""
    found = []
    for _ in range(rows):
        for block in vec.hold_all():
            found.append(flat(block.rows))
            vec.send(block, np.ones_like(block.rows.action))
    vec.hold_all()
    return found


FACTORIES = {
    "disabled": lambda: PythonEnvFactory(KeptClock, stats=("score",)),
    "same-step": lambda: PythonEnvFactory(KeptSameStep, stats=("score",)),
    "next-step": lambda: PythonEnvFactory(KeptNextStep),
    "several-agents": crowd_factory,
}


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_a_state_saved_at_any_row_goes_on_bit_for_bit(make: Any, backend: str) -> None:
    """The row after an end, where a same-step environment's first observation is held, is one of them."""
    factory = make()
    for saved_at in range(ROWS - 2):
        with (
            make_vector(factory, 2, backend=backend) as vec,
            make_vector(factory, 2, backend=backend) as other,
        ):
            vec.async_reset(3)
            go_on(vec, saved_at)
            state = pickle.loads(pickle.dumps(vec.state_dict()))
            expected = go_on(vec, ROWS - saved_at - 2)
            other.async_reset(8)
            go_on(other, 2)
            other.load_state_dict(state)
            for ours, theirs in zip(go_on(other, len(expected)), expected):
                assert_same(ours, theirs)


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
def test_a_saved_state_does_not_change_with_later_steps(make: Any) -> None:
    factory = make()
    for saved_at in range(5):
        with make_vector(factory, 2) as vec:
            vec.async_reset(3)
            go_on(vec, saved_at)
            state = vec.state_dict()
            before = copy.deepcopy(state)
            go_on(vec, 4)
            assert pickle.dumps(state) == pickle.dumps(before)


def test_the_agents_of_an_environment_are_all_back_in_its_next_episode() -> None:
    with make_vector(crowd_factory(), 1) as vec:
        vec.async_reset(3)
        rows = go_on(vec, 15)
    for first, second, third in zip(rows[:5], rows[5:10], rows[10:]):
        assert_same(first, second)
        assert_same(first, third)
    assert [row["mask"].sum() for row in rows[10:]] == [3, 3, 2, 1, 0]


def test_a_reset_in_the_middle_of_an_episode_brings_all_agents_back() -> None:
    for stop in range(1, 5):
        with make_vector(crowd_factory(), 1) as vec:
            vec.async_reset(3)
            first = go_on(vec, stop)
            vec.async_reset(3)
            for one, again in zip(go_on(vec, 5), first):
                assert_same(one, again)
