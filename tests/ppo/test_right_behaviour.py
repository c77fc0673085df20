"""Tests cases that users of other trainers report as bugs, numbered as in the list of right behaviour.

Each test is written as a user would meet it: a Gymnasium environment through the real vector and loop.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.advantage import compute_advantage
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.policy import make_policy
from metta_fast.rollout.finite_checks import NonFiniteError
from tests.ppo.envs import Line
from tests.ppo.stand_in import make_config, make_ppo

GAMMA, LAMBDA = 0.9, 0.8


def collected(make: Any, *, envs: int = 1, horizon: int = 8, **keys: Any) -> PPO:
    """One rollout with its advantages; the value of a row is made to be 10 + 3 · observation."""
    ppo = make_ppo(
        PythonEnvFactory(make),
        envs,
        horizon=horizon,
        bptt=horizon,
        minibatches=1,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        **keys,
    )
    ppo.collect()
    ppo.rollout.vec.close()
    ppo.buffers.value.copy_(10 + 3 * ppo.buffers.obs["obs"][..., 0])
    compute_advantage(ppo.buffers, ppo.config.trainer, ppo.spec.has_final_obs)
    return ppo


def test_1_a_time_limit_bootstraps_from_the_true_final_observation() -> None:
    """Cut after 4 steps: the last step's target is 1 + γ V(4), V(4) = 22; the new episode has V(0) = 10."""
    b = collected(lambda i: Line(4, truncated=True)).buffers
    last = 3
    assert b.obs["obs"][last + 1, 0, 0] == 4
    assert b.advantage[last, 0] == pytest.approx(1 + GAMMA * 22 - 19)
    assert b.advantage[last - 1, 0] == pytest.approx(
        1 + GAMMA * 19 - 16 + GAMMA * LAMBDA * float(b.advantage[last, 0])
    )
    assert b.advantage[last + 1, 0] == 0, "the reset's row is no step"
    assert b.advantage[last + 2, 0] != 0, "the advantage of the next episode starts by itself"


@pytest.mark.parametrize("truncated", [False, True])
def test_2_terminated_means_no_bootstrap_even_when_truncated_too(truncated: bool) -> None:
    b = collected(lambda i: Line(4, terminated=True, truncated=truncated)).buffers
    assert b.advantage[3, 0] == pytest.approx(1 - 19)


class ResetsItself(Line):
    """The same line in the other two autoreset modes of Gymnasium."""

    def __init__(self, mode: str) -> None:
        super().__init__(4)
        self.metadata = {"autoreset_mode": mode}
        self.mode, self.over = mode, False

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.over and self.mode == gymnasium.vector.AutoresetMode.NEXT_STEP:
            self.over = False
            return self.reset()[0], 0.0, False, False, {}
        obs, reward, terminated, self.over, info = super().step(action)
        if self.over and self.mode == gymnasium.vector.AutoresetMode.SAME_STEP:
            info = {"final_obs": obs}
            obs = self.reset()[0]
        return obs, reward, terminated, self.over, info


@pytest.mark.parametrize("mode", list(gymnasium.vector.AutoresetMode))
def test_3_the_autoreset_mode_is_honoured_and_a_reset_is_never_trained_on(mode: Any) -> None:
    b = collected(
        lambda i: ResetsItself(mode) if mode != gymnasium.vector.AutoresetMode.DISABLED else Line(4),
        horizon=12,
    ).buffers
    assert b.obs["obs"][:, 0, 0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2]
    assert b.mask[:, 0].tolist() == [True, True, True, True, False] * 2 + [True] * 3
    assert b.reset[:, 0].tolist() == [True, False, False, False, False] * 2 + [True, False, False]
    assert b.reward[:, 0].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1]
    ended = [t for t in range(12) if b.truncation[t, 0]]
    assert ended == [3, 8]
    assert b.advantage[3, 0] == pytest.approx(1 + GAMMA * 22 - 19)


def test_3_steps_are_counted_without_resets() -> None:
    ppo = make_ppo(PythonEnvFactory(lambda i: Line(4)), 2, horizon=10, bptt=10)
    ppo.collect()
    ppo.update()
    ppo.rollout.vec.close()
    assert ppo.steps == 2 * 8


def test_4_the_true_terminal_observation_survives_the_reset() -> None:
    b = collected(lambda i: Line(4, terminated=True, truncated=False), envs=3).buffers
    assert b.terminal[3].all()
    assert b.obs["obs"][4, :, 0].tolist() == [4, 4, 4]
    assert b.obs["obs"][5, :, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "flags",
    [
        {"terminated": True, "truncated": False},
        {"terminated": False, "truncated": True},
        {"terminated": True, "truncated": True},
    ],
)
def test_5_return_and_length_restart_on_either_flag(flags: dict) -> None:
    ppo = make_ppo(PythonEnvFactory(lambda i: Line(4, **flags)), 2, horizon=20, bptt=20)
    for _ in range(2):
        ppo.collect()
        ppo.update()
        metrics = ppo.metrics()
        assert (metrics["env/return"], metrics["env/length"]) == (4.0, 4.0)
    ppo.rollout.vec.close()


class Branches(gymnasium.Env):
    """MultiDiscrete of unequal sizes; the right choice is the step's number in each."""

    def __init__(self) -> None:
        self.observation_space = Box(0, 100, (1,), np.float32)
        self.action_space = MultiDiscrete([2, 7, 3])
        self.step_of = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.step_of = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert action.shape == (3,)
        assert self.action_space.contains(np.asarray(action, np.int64)), action
        right = float(sum(int(a) == self.step_of % n for a, n in zip(action, (2, 7, 3))))
        self.step_of += 1
        return np.full(1, self.step_of % 42, np.float32), right, False, self.step_of >= 10, {}


def with_policy(factory: PythonEnvFactory, envs: int, core: str = "none", **keys: Any) -> PPO:
    config = make_config()
    config.policy.hidden_size, config.policy.core = 32, core
    torch.manual_seed(0)
    return make_ppo(factory, envs, policy=make_policy(config.policy, factory.spec), **keys)


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
def test_11_multidiscrete_branches_of_unequal_size_work_with_a_recurrent_core(core: str) -> None:
    ppo = with_policy(PythonEnvFactory(lambda i: Branches()), 4, core, horizon=22, bptt=11, blocks=2)
    for _ in range(3):
        ppo.collect()
        assert [int(ppo.buffers.action[..., i].max()) for i in range(3)] == [1, 6, 2]
        ppo.update()
    ppo.rollout.vec.close()
    assert math.isfinite(ppo.metrics()["loss/policy"])


class Spoiled(Line):
    """`bad` says what is not a number at the third step of environment 1."""

    def __init__(self, index: int, bad: str) -> None:
        super().__init__(10)
        self.bad = bad if index == 1 else ""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        obs, reward, *rest = super().step(action)
        if self.step_of == 3 and self.bad == "observation":
            obs = np.full(1, math.nan, np.float32)
        elif self.step_of == 3 and self.bad == "reward":
            reward = math.inf
        return obs, reward, *rest


@pytest.mark.parametrize("bad", ["observation", "reward"])
def test_12_nan_or_inf_stops_with_environment_and_field(bad: str) -> None:
    ppo = with_policy(PythonEnvFactory(lambda i: Spoiled(i, bad)), 3, horizon=10, bptt=10, blocks=3)
    before = [p.detach().clone() for p in ppo.policy.parameters()]
    with pytest.raises(NonFiniteError, match=rf"{bad}.*environment 1"):
        ppo.collect()
    ppo.rollout.vec.close()
    assert all(torch.equal(old, new) for old, new in zip(before, ppo.policy.parameters()))


def test_20_the_last_step_of_a_segment_has_a_real_advantage() -> None:
    """No episode ends: each row's advantage is that of the whole horizon, up to the value of row T."""
    b = collected(lambda i: Line(100)).buffers
    expected, following = [0.0] * 8, 0.0
    for t in reversed(range(8)):
        value, following_value = 10 + 3 * t, 10 + 3 * (t + 1)
        following = 1 + GAMMA * following_value - value + GAMMA * LAMBDA * following
        expected[t] = following
    assert b.advantage[:, 0].tolist() == pytest.approx(expected, rel=1e-5)
    assert b.advantage[7, 0] == pytest.approx(1 + GAMMA * 34 - 31, rel=1e-5)


def test_9_discrete_with_a_start_gives_actions_from_it() -> None:
    seen: set[int] = set()

    class Shifted(Line):
        def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
            seen.add(int(action))
            return super().step(action)

    collected(lambda i: Shifted(4, start=5), envs=4, horizon=16)
    assert isinstance(Shifted(start=5).action_space, Discrete)
    assert seen == {5, 6}
