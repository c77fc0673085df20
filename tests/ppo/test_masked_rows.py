"""Tests that rows which are not trained on never end a run, and that a live row's fault names its environment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.device_ppo import DevicePPO
from metta_fast.algorithms.ppo.loss import ppo_loss
from metta_fast.algorithms.ppo.minibatch import Minibatch
from metta_fast.contracts.errors import UserError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.inference.players import PolicyPlayer
from metta_fast.policy.base import Policy, PolicyOutput
from metta_fast.rollout.finite_checks import NonFiniteError
from tests.ppo.device_vector import DeviceVector
from tests.ppo.envs import Line
from tests.ppo.stand_in import TinyPolicy, make_config, make_ppo, run
from tests.ppo.test_rollout import weights

BACKENDS: Any = [{}, {"backend": "threads", "threads": 2, "blocks": 2}, {"backend": "workers", "workers": 2}]
LAST = 4
"""The observation after the last step of an episode: a masked row."""


class Forbids(Policy):
    """A user's policy: where the observation is `at`, all its logits are `logit` and its value is `value`."""

    def __init__(self, spec: Any, at: float, logit: float = -math.inf, value: float = 0.0) -> None:
        super().__init__(spec)
        self.net = torch.nn.Linear(1, self.head.num_params + 1)
        self.at, self.logit, self.bad_value = at, logit, value

    def forward(self, obs: Any, state: Tensor, reset: Tensor) -> PolicyOutput:
        out = self.net(obs["obs"] / LAST)
        here = obs["obs"] == self.at
        params = out[..., :-1].masked_fill(here, self.logit)
        return PolicyOutput(params, out[..., -1].masked_fill(here[..., 0], self.bad_value), state)


class Spoilt(Line):
    """Gives `value` as the observation after the last step; None: the right one."""

    def __init__(self, value: float | None, **flags: bool) -> None:
        super().__init__(LAST, **flags)
        self.bad = value

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        spoils = self.bad is not None and self.step_of == LAST
        return (np.full_like(obs, self.bad) if spoils else obs), *rest

    def state_dict(self) -> dict[str, Any]:
        return {"step_of": self.step_of}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step_of = state["step_of"]


def lines(value: float | None = None, *, terminated: bool) -> PythonEnvFactory:
    flags = {"terminated": terminated, "truncated": not terminated}
    return PythonEnvFactory(lambda index: Spoilt(value, **flags), name="line")


def on_device(factory: PythonEnvFactory, policy: Policy) -> DevicePPO:
    config = make_config(batch_size=64, minibatch_size=32, bptt_horizon=8, torch_threads=1)
    vec = DeviceVector(factory, 4)
    return DevicePPO(config, factory.spec, vec, policy, device=torch.device("cpu"))


def trains(ppo: PPO) -> None:
    before = weights(ppo)
    run(ppo, 2)
    assert torch.isfinite(weights(ppo)).all()
    assert not torch.equal(weights(ppo), before)


@pytest.mark.parametrize("keys", BACKENDS)
@pytest.mark.parametrize(("logit", "value"), [(-math.inf, 0.0), (math.nan, math.nan)])
def test_a_policy_may_give_anything_after_a_terminal_step(keys: Any, logit: float, value: float) -> None:
    factory = lines(terminated=True)
    trains(make_ppo(factory, 4, policy=Forbids(factory.spec, LAST, logit, value), **keys))


def test_logits_of_minus_infinity_after_a_time_limit_do_not_matter() -> None:
    factory = lines(terminated=False)
    trains(make_ppo(factory, 4, policy=Forbids(factory.spec, LAST)))
    trains(on_device(factory, Forbids(factory.spec, LAST)))


@pytest.mark.parametrize("device", [False, True])
def test_a_live_row_without_a_choice_names_its_environment(device: bool) -> None:
    """Before an illegal action is sent on the CPU, with the summary on a device; and it is no diverged weight."""
    factory = lines(terminated=True)
    policy = Forbids(factory.spec, 2.0)
    ppo = on_device(factory, policy) if device else make_ppo(factory, 4, blocks=2, policy=policy)
    with pytest.raises(
        NonFiniteError, match=r"environment 0 \(agent 0 of it\), row \d of .*no choice"
    ) as told:
        run(ppo, 1)
    assert "\n" not in str(told.value)
    assert "diverged" not in str(told.value)


@pytest.mark.parametrize("keys", BACKENDS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_observation_after_a_terminal_step_may_be_anything(keys: Any, value: float) -> None:
    ppo = make_ppo(lines(value, terminated=True), 4, **keys)
    trains(ppo)
    last = ~ppo.buffers.mask
    assert last.any()
    assert not ppo.buffers.obs["obs"][last].any(), "0 is written in its place"


def test_the_same_with_environments_on_the_device_and_a_core() -> None:
    factory = lines(math.nan, terminated=True)
    trains(on_device(factory, TinyPolicy(factory.spec)))  # type: ignore[arg-type]
    trains(make_ppo(factory, 4, lstm=True))


@pytest.mark.parametrize("device", [False, True])
def test_the_observation_that_a_time_limit_bootstraps_from_is_named(device: bool) -> None:
    factory = lines(math.nan, terminated=False)
    ppo = on_device(factory, TinyPolicy(factory.spec)) if device else make_ppo(factory, 4)  # type: ignore[arg-type]
    with pytest.raises(NonFiniteError, match=r"observation is nan in environment 0 .*row \d of"):
        run(ppo, 1)


def test_an_evaluation_without_a_choice_names_the_environment_of_a_live_row() -> None:
    factory = lines(terminated=True)
    policy, obs = Forbids(factory.spec, LAST), {"obs": np.array([[1.0], [LAST]], np.float32)}
    for deterministic in (False, True):
        player = PolicyPlayer(policy, factory.spec, torch.device("cpu"), deterministic=deterministic)
        begins = np.zeros(2, np.bool_)
        assert player.choose(obs, begins, np.array([True, False])).shape == (2, 1)
        with pytest.raises(UserError, match=r"no choice in environment 1 \(agent 0 of it\)"):
            player.choose(obs, begins)


def test_a_loss_over_masked_rows_that_are_nan_has_finite_gradients() -> None:
    mask = torch.tensor([[True, True], [True, False]])
    bad = torch.where(mask, 0.5, math.nan)
    batch = Minibatch({}, bad, mask, mask, bad, bad, bad, bad, bad, None)
    for keys in ({}, {"vf_clip_coef": 0.1}, {"normalize_advantage": False}):
        given = [bad.clone().requires_grad_() for _ in range(3)]
        result = ppo_loss(*given, batch, make_config(**keys).trainer, torch.tensor(0.2))
        result.loss.backward()
        assert result.stats.isfinite().all()
        assert all(x.grad is not None and x.grad.isfinite().all() for x in given)
