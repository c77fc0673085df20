"""Tests that NaN and infinity stop the run with field and environment, before anything learns from them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo import PPO
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.policy import make_policy
from metta_fast.rollout.finite_checks import NonFiniteError
from tests.ppo.envs import Ticker, tickers
from tests.ppo.stand_in import make_config, make_ppo, run
from tests.ppo.test_rollout import weights


class Broken(Ticker):
    """Gives `value` in one field at the fourth step of environment 2."""

    def __init__(self, index: int, field: str, value: float, **keys: Any) -> None:
        super().__init__(index, **keys)
        self.field, self.value, self.steps = field, value, 0

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, reward, *rest = super().step(action)
        self.steps += 1
        if self.index == 2 and self.steps == 4:
            if self.field == "observation":
                obs[1] = self.value
            else:
                reward = self.value
        return obs, reward, *rest


def ppo_over(field: str, value: float, **keys: Any) -> PPO:
    factory = PythonEnvFactory(lambda index: Broken(index, field, value), name="broken")
    return make_ppo(factory, 4, **keys)


@pytest.mark.parametrize("field", ["observation", "reward"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_field_and_environment_are_named(field: str, value: float) -> None:
    ppo = ppo_over(field, value, blocks=2)
    before = weights(ppo)
    try:
        with pytest.raises(
            NonFiniteError, match=rf"{field} is {value} in environment 2 \(agent 0 of it.*row"
        ):
            ppo.collect()
    finally:
        ppo.rollout.vec.close()
    assert torch.equal(weights(ppo), before)


@pytest.mark.parametrize("name", ["action", "value"])
def test_what_the_policy_gives_is_checked(name: str) -> None:
    factory = PythonEnvFactory(lambda index: Ticker(index, box=True), name="ticker")
    ppo = make_ppo(factory, 2)
    layer = ppo.policy.output if name == "action" else ppo.policy.critic
    with torch.no_grad():
        layer.bias.fill_(math.nan)
    try:
        with pytest.raises(NonFiniteError, match=rf"{name} is nan in environment 0"):
            ppo.collect()
    finally:
        ppo.rollout.vec.close()


def test_a_head_without_a_choice_because_of_nan_weights_says_so() -> None:
    factory = PythonEnvFactory(Ticker, name="ticker")
    ppo = make_ppo(factory, 2, policy=make_policy(make_config().policy, factory.spec))
    with torch.no_grad():
        next(ppo.policy.parameters()).fill_(math.nan)
    try:
        with pytest.raises(NonFiniteError, match="weight"):
            ppo.collect()
    finally:
        ppo.rollout.vec.close()


def test_an_observation_that_spoils_a_float_action_is_named_itself() -> None:
    factory = PythonEnvFactory(lambda index: Broken(index, "observation", math.nan, box=True), name="broken")
    ppo = make_ppo(factory, 4, blocks=2)
    try:
        with pytest.raises(NonFiniteError, match=r"observation is nan in environment 2 .*row 4 of"):
            ppo.collect()
    finally:
        ppo.rollout.vec.close()


def test_a_loss_that_overflows_is_an_error_and_the_last_state_stays_good() -> None:
    ppo = ppo_over("reward", 1e30)
    last = ppo.state_dict()
    try:
        ppo.collect()
        with pytest.raises(NonFiniteError, match=r"loss.*environment 2"):
            ppo.update()
    finally:
        ppo.rollout.vec.close()
    assert all(torch.isfinite(w).all() for w in last["policy"].values())
    assert (ppo.epoch, ppo.steps) == (0, 0)


@pytest.mark.parametrize(("precision", "words"), [("fp32", "gradient_norm"), ("fp16", "at any loss scale")])
def test_gradients_that_are_never_finite_are_an_error(precision: str, words: str) -> None:
    """The loss itself is finite: sqrt at 0. Under fp16 steps are skipped, but not for ever."""
    hooks = Hooks(extra_loss=[lambda batch, output: (output.value * 0).sqrt().sum()])
    ppo = make_ppo(tickers(2), minibatches=2, hooks=hooks, precision=precision)
    before = weights(ppo)
    with pytest.raises(NonFiniteError, match=words):
        run(ppo, 20)
    assert ppo.epoch == (13 if precision == "fp16" else 0)
    if precision == "fp16":
        assert torch.equal(weights(ppo), before)
