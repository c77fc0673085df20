"""A run ends at exactly trainer.total_timesteps: its last rollout is shortened and cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from metta_fast.algorithms.budget import keep_steps, rows_needed
from metta_fast.algorithms.hooks import Hooks
from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo import ppo as ppo_module
from metta_fast.config.keys import PolicyConfig
from metta_fast.policy import make_policy
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo
from tests.ppo.test_device_rollout import device_ppo
from tests.ppo.test_rollout import weights

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "LSTM": {"lstm": True},
    "update in C": {"bptt": 1, "minibatches": 4, "update_epochs": 3},
    "values again": {"recompute": "pass", "update_epochs": 2},
    "workers": {"backend": "workers", "workers": 2, "blocks": 2},
}


def made(form: str, total: int, **keys: Any) -> PPO:
    torch.manual_seed(0)
    factory = tickers(4, box=form == "update in C")
    policy = None
    if form == "update in C":
        policy = make_policy(PolicyConfig(hidden_size=16, shared=False), factory.spec)
    return make_ppo(factory, policy=policy, total_timesteps=total, deterministic=True, **FORMS[form], **keys)


def trained(ppo: PPO) -> tuple[int, torch.Tensor, list[int]]:
    """Returns the steps, the weights, and the steps of each epoch."""
    steps = [0]
    try:
        while ppo.steps < ppo.config.trainer.total_timesteps:
            ppo.collect()
            ppo.update()
            steps.append(ppo.steps)
            assert len(steps) < 40
    finally:
        ppo.rollout.vec.close()
    return ppo.steps, weights(ppo), list(np.diff(steps))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("total", [1, 5, 64, 157])
def test_a_run_ends_at_its_budget(form: str, total: int) -> None:
    steps, after, _ = trained(made(form, total))
    assert steps == total
    assert after.isfinite().all()


@pytest.mark.parametrize("form", FORMS)
def test_a_shortened_rollout_teaches_what_a_whole_one_does_up_to_the_budget(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, asked = made(form, 150), []

    def whole(*arguments: Any) -> None:
        asked.append(rows_needed(*arguments))

    _, weights_short, steps = trained(short)
    monkeypatch.setattr(ppo_module, "rows_needed", whole)
    _, weights_whole, as_whole = trained(made(form, 150))
    assert steps == as_whole
    assert [rows for rows in asked if rows is not None]
    assert torch.equal(weights_short, weights_whole)


@pytest.mark.parametrize("ahead", [False, True])
def test_environments_on_the_learners_device_end_at_the_budget(ahead: bool) -> None:
    keys: dict[str, Any] = {"total_timesteps": 250, "deterministic": True}
    device, plain = device_ppo(tickers(5), ahead=ahead, **keys), make_ppo(tickers(5), **keys)
    while plain.steps < 250:
        for ppo in (device, plain):
            ppo.collect()
            ppo.update()
    assert device.steps == plain.steps == 250
    for a, b in zip(device.policy.parameters(), plain.policy.parameters()):
        assert torch.equal(a, b)


def test_the_environments_are_not_stepped_far_beyond_the_budget() -> None:
    ppo = made("plain", 70)
    calls, step = [], ppo.rollout.vec.send
    ppo.rollout.vec.send = lambda block: (calls.append(block.size), step(block))[1]  # type: ignore[method-assign]
    trained(ppo)
    assert (
        70 <= sum(calls) <= 70 + 5 * 4
    )  # masked rows and a row of all agents; a whole second rollout ends at 128


def test_the_advantage_ends_at_the_cut_as_at_a_rollouts_end() -> None:
    ppo = made("plain", 1000)
    ppo.collect()
    b = ppo.buffers
    b.mask[:] = True
    b.terminal[:] = b.truncation[:] = False
    keep_steps(b, 4 * 6 + 1)  # six rows of all agents, one more of agent 0
    ppo.learner._advantage()
    gamma, lam = ppo.config.trainer.gamma, ppo.config.trainer.gae_lambda
    for agent, rows in ((0, 7), (1, 6)):
        expected = 0.0
        for t in reversed(range(rows)):
            delta = b.reward[t, agent] + gamma * b.value[t + 1, agent] - b.value[t, agent]
            expected = float(delta) + gamma * lam * expected
        assert b.advantage[0, agent].item() == pytest.approx(expected, abs=1e-4)
        assert not b.advantage[rows:, agent].any()


def test_every_schedule_has_its_last_value_in_the_last_update() -> None:
    seen: list[float] = []
    hooks = Hooks(on_rollout=[lambda context: seen.append(context.progress)])
    trained(make_ppo(tickers(4), total_timesteps=300, hooks=hooks))
    assert (seen[0], seen[-1]) == (0, 1)
    assert seen == sorted(seen)


def test_a_long_budget_is_met_as_exactly() -> None:
    assert trained(make_ppo(tickers(4), horizon=256, total_timesteps=20_001))[0] == 20_001


def test_rows_needed() -> None:
    assert rows_needed(1000, 4, 16, 1.0) is None  # a whole rollout
    assert rows_needed(64, 4, 16, 1.0) is None
    assert rows_needed(0, 4, 16, 1.0) is None  # run on purpose beyond the budget
    assert rows_needed(1, 4, 16, 1.0) == 2
    assert rows_needed(20, 4, 16, 1.0) == 6
    assert rows_needed(63, 4, 16, 0.5) is None


@pytest.mark.parametrize("live", [0.5, 0.9, 0.99])
def test_the_shortened_rollout_is_seldom_too_short(live: float) -> None:
    """Rows are masked at random, as episodes of random lengths end: 1 / (1 - live) rows on average."""
    random, agents, remaining, short = np.random.default_rng(0), 8, 1000, 0
    for _ in range(500):
        rows = rows_needed(remaining, agents, 4096, live)
        assert rows is not None
        short += (random.random((rows, agents)) < live).sum() < remaining
    assert short <= 5
    assert rows * agents * live < 1.35 * remaining


@pytest.mark.parametrize("form", ["plain", "workers"])
def test_a_resume_before_the_last_epoch_goes_on_bit_for_bit(form: str) -> None:
    whole = made(form, 150)
    whole.collect()
    whole.update()
    state, env = whole.state_dict(), whole.rollout.vec.state_dict()
    _, unbroken, _ = trained(whole)
    resumed = made(form, 150)
    resumed.rollout.vec.load_state_dict(env)
    resumed.load_state_dict(state)
    steps, after, _ = trained(resumed)
    assert steps == 150
    assert torch.equal(after, unbroken)
