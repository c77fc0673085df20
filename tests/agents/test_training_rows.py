"""Follows agents that come, pause and go into the rollout's buffers and PPO's update."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from metta_fast.algorithms.ppo.advantage import compute_advantage
from metta_fast.envs.python_env import PythonEnvFactory
from tests.agents.games import Game
from tests.ppo.stand_in import make_ppo

GAMMA, LAMBDA = 0.9, 0.8
SCRIPT = [["LLL", "LTL", "L..", "LLa", "LLL", "CNc"]]
"""Agent 0 is cut at the end. 1 ends, is away, and ends with NaN. 2 pauses, and is cut without an observation."""


@contextmanager
def made():
    """PPO with an LSTM over one environment."""
    ppo = make_ppo(
        PythonEnvFactory(lambda index: Game(SCRIPT)),
        1,
        horizon=6,
        bptt=6,
        minibatches=1,
        lstm=True,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
    )
    yield ppo
    ppo.rollout.vec.close()


@pytest.fixture(scope="module")
def collected():
    """A rollout."""
    with made() as ppo:
        ppo.collect()
        yield ppo


def test_every_stay_of_an_agent_is_an_episode_and_only_a_cut_bootstraps(collected):
    b = collected.buffers
    value = b.value.clone()
    b.value.copy_(10 + 3 * b.obs["obs"][..., 1])
    compute_advantage(b, collected.config.trainer, collected.spec.has_final_obs)
    T, F = True, False
    assert b.mask[:6].T.tolist() == [[T] * 5 + [F], [T, F, F, T, T, F], [T, T, F, F, T, F]]
    assert b.reset[:6].T.tolist() == [[T] + [F] * 5, [T, F, F, T, F, F], [T, F, F, F, T, F]]
    r, a = b.reward, b.advantage
    assert a[4, 0] == pytest.approx(r[4, 0] + GAMMA * 25 - 22), "cut: from its last observation"
    assert a[0, 1] == pytest.approx(r[0, 1] - 10), "terminated"
    assert a[4, 1] == pytest.approx(r[4, 1] - 22), "terminated, its last observation was NaN"
    assert a[1, 2] == pytest.approx(-13), "a pause without a flag, and nothing was said of its reward"
    assert a[4, 2] == pytest.approx(r[4, 2] - 22), "cut, without a last observation"
    assert (a[~b.mask[:6]] == 0).all()
    assert torch.isfinite(b.obs["obs"]).all()
    b.value.copy_(value)


def test_an_update_learns_from_them_without_nan(collected):
    before = [p.clone() for p in collected.policy.parameters()]
    collected.update()
    assert all(torch.isfinite(p).all() for p in collected.policy.parameters())
    assert any((p != old).any() for p, old in zip(collected.policy.parameters(), before))


def test_the_core_begins_anew_when_an_agent_is_back():
    """The value of a stay's first row is what the policy gives without a past; that of a later row is not."""
    with made() as ppo:
        ppo.collect()
        b, policy = ppo.buffers, ppo.policy
        for t, agent in ((3, 1), (4, 2)):
            for row, same in ((t, True), (1, False)):
                obs = {"obs": b.obs["obs"][row : row + 1, agent : agent + 1]}
                start = policy.initial_state(1, torch.device("cpu"))
                alone = policy(obs, start, torch.zeros(1, 1, dtype=torch.bool)).value
                assert torch.allclose(alone[0, 0], b.value[row, agent], atol=1e-6) == same
