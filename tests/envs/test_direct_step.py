"""Tests that stepping past Gymnasium's own wrappers gives the same as env.step, and where it is not done."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from metta_fast.envs.direct_step import direct_step
from tests.strangers import Cheap


def cart_pole(**more: object) -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", **more)


@pytest.mark.parametrize(
    "make",
    [
        cart_pole,
        lambda: cart_pole(max_episode_steps=7),
        lambda: PassiveEnvChecker(Cheap()),
        lambda: TimeLimit(PassiveEnvChecker(Cheap()), 5),
        lambda: OrderEnforcing(PassiveEnvChecker(Cheap())),
    ],
)
def test_the_steps_are_the_same(make) -> None:
    plain, env = make(), make()
    step = direct_step(env)
    assert step != env.step
    rng, ends = np.random.default_rng(0), []
    for _ in range(12):
        seed = int(rng.integers(1000))
        plain.reset(seed=seed)
        env.reset(seed=seed)
        while True:
            action = int(rng.integers(2))
            expected, found = plain.step(action), step(action)
            assert np.array_equal(expected[0], found[0])
            assert expected[1:] == found[1:]
            assert getattr(plain, "_elapsed_steps", 0) == getattr(env, "_elapsed_steps", 0)
            if found[2] or found[3]:
                ends.append(found[3])
                break
    assert len(ends) == 12


def test_the_first_step_is_checked() -> None:
    class Wrong(Cheap):
        def step(self, action):
            return (*super().step(action)[:4], None)

    env = TimeLimit(PassiveEnvChecker(Wrong()), 9)
    env.reset(seed=0)
    with pytest.raises(AssertionError):
        direct_step(env)(0)


def test_other_wrappers_and_replaced_steps_are_not_passed_by() -> None:
    class Longer(TimeLimit):
        pass

    class Checker(PassiveEnvChecker):
        pass

    for env in (Cheap(), Longer(PassiveEnvChecker(Cheap()), 5), TimeLimit(Checker(Cheap()), 5)):
        assert direct_step(env) == env.step
    replaced = PassiveEnvChecker(Cheap())
    replaced.step = lambda action: None  # type: ignore[method-assign, assignment, return-value]
    assert direct_step(replaced) == replaced.step
    inside = gymnasium.wrappers.TransformReward(PassiveEnvChecker(Cheap()), lambda reward: 2 * reward)
    assert direct_step(inside) == inside.step
