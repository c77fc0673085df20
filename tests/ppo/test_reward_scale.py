"""Tests reward scaling: the variance of the discounted return over all rows, merged by epochs."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from metta_fast.rollout.reward_scale import RewardScale
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_rollout import weights

GAMMA = 0.9
AGENTS, HORIZON, EPOCHS = 5, 12, 4


def rollouts(seed: int) -> list[Any]:
    """Stand-ins for Buffers: what `apply` reads of them."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(EPOCHS):
        shape = (HORIZON, AGENTS)
        made.append(
            SimpleNamespace(
                horizon=HORIZON,
                mask=torch.from_numpy(rng.random((HORIZON + 1, AGENTS)) > 0.1),
                reward=torch.from_numpy((rng.normal(size=shape) * 0.01 + 0.02).astype(np.float32)),
                terminal=torch.from_numpy(rng.random(shape) > 0.9),
                truncation=torch.from_numpy(rng.random(shape) > 0.9),
            )
        )
        made[-1].reward[~made[-1].mask[:HORIZON]] = 0
    return made


def test_the_scale_is_that_of_the_discounted_return_over_all_rows() -> None:
    scale = RewardScale(AGENTS, GAMMA, torch.device("cpu"))
    running, seen = np.zeros(AGENTS), []
    for b in rollouts(0):
        raw = b.reward.clone()
        for t in range(HORIZON):
            running = GAMMA * running + raw[t].numpy()
            seen += list(running[b.mask[t].numpy()])
            running[(b.terminal[t] | b.truncation[t]).numpy()] = 0
        scale.apply(b)
        torch.testing.assert_close(b.reward, raw / np.sqrt(np.var(seen) + 1e-8), rtol=1e-4, atol=1e-6)


def test_masked_rows_take_no_part() -> None:
    """Nor do they lengthen a return: the row after an end starts at 0, for an agent that is gone stays 0."""
    plain, spoilt = (RewardScale(AGENTS, GAMMA, torch.device("cpu")) for _ in range(2))
    for a, b in zip(rollouts(3), rollouts(3)):
        b.reward[~b.mask[:HORIZON]] = 1e6
        for scale, given in ((plain, a), (spoilt, b)):
            scale.apply(given)
        assert torch.equal(plain.moments, spoilt.moments)
        assert torch.equal(plain.discounted, spoilt.discounted)
        assert torch.equal(a.reward[a.mask[:HORIZON]], b.reward[b.mask[:HORIZON]])


def test_blocks_and_order_of_arrival_change_nothing_and_a_resume_goes_on() -> None:
    """Bitwise: the statistics are taken from the whole buffer, by agent, and travel with the state."""

    def fresh(**keys: Any) -> Any:
        return make_ppo(tickers(6), blocks=3, normalize_reward=True, deterministic=True, **keys)

    serial, threads = fresh(), fresh(backend="threads", threads=3)
    for ppo in (serial, threads):
        for _ in range(2):
            ppo.collect()
            ppo.update()
    state, env = serial.state_dict(), serial.rollout.vec.state_dict()
    resumed = fresh()
    resumed.rollout.vec.load_state_dict(env)
    resumed.load_state_dict(state)
    for ppo in (serial, threads, resumed):
        run(ppo, 2)
    for other in (threads, resumed):
        assert torch.equal(weights(serial), weights(other))
        assert torch.equal(serial.reward_scale.moments, other.reward_scale.moments)


def test_new_episodes_after_a_resume_start_new_returns() -> None:
    ppo = run(make_ppo(tickers(4), normalize_reward=True), 1)
    assert ppo.reward_scale.discounted.any()
    resumed = make_ppo(tickers(4), normalize_reward=True)
    resumed.load_state_dict({k: v for k, v in ppo.state_dict().items() if k != "rollout"})
    seen = []
    resumed.rollout.collect = lambda epoch, rows=None: seen.append(resumed.reward_scale.discounted.clone())  # type: ignore[method-assign]
    resumed.collect()
    resumed.rollout.vec.close()
    assert seen[0].tolist() == [0, 0, 0, 0]
    assert resumed.reward_scale.moments[0] > 0


def test_a_saved_scale_goes_on_as_if_unbroken() -> None:
    whole = RewardScale(AGENTS, GAMMA, torch.device("cpu"))
    broken = RewardScale(AGENTS, GAMMA, torch.device("cpu"))
    for i, (a, b) in enumerate(zip(rollouts(1), rollouts(1))):
        if i == 2:
            state = broken.state_dict()
            broken.apply(rollouts(9)[0])  # what came after the snapshot is dropped
            broken = RewardScale(AGENTS, GAMMA, torch.device("cpu"))
            broken.load_state_dict(state)
        whole.apply(a)
        broken.apply(b)
        assert torch.equal(a.reward, b.reward)


def test_another_number_of_agents_keeps_the_variance() -> None:
    old, new = (RewardScale(n, GAMMA, torch.device("cpu")) for n in (AGENTS, 2))
    old.apply(rollouts(2)[0])
    new.load_state_dict(old.state_dict())
    assert torch.equal(new.moments, old.moments)
    assert new.discounted.tolist() == [0, 0]


def test_statistics_see_rewards_as_they_are_and_the_learner_scaled_ones() -> None:
    plain, scaled = (make_ppo(tickers(4), normalize_reward=on) for on in (False, True))
    for ppo in (plain, scaled):
        ppo.collect()
        ppo.update()
    assert scaled.metrics()["env/return"] == plain.metrics()["env/return"]
    factor = scaled.buffers.reward.abs().sum() / plain.buffers.reward.abs().sum()
    torch.testing.assert_close(scaled.buffers.reward, plain.buffers.reward * factor)
    assert float(factor) != pytest.approx(1.0)


def rollout(reward: torch.Tensor, terminal: torch.Tensor) -> Any:
    mask = torch.ones(len(reward) + 1, reward.shape[1], dtype=torch.bool)
    return SimpleNamespace(
        horizon=len(reward),
        mask=mask,
        reward=reward,
        terminal=terminal,
        truncation=torch.zeros_like(terminal),
    )


@pytest.mark.parametrize("size", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("length", [1, 2, 1000])
@pytest.mark.parametrize("kind", ["constant", "nearly", "single", "negative", "last"])
def test_rewards_are_of_order_one_from_the_first_epoch_on(kind: str, length: int, size: float) -> None:
    """Constant rewards, a single one, tiny episodes: before there is variance the scale is no 1e4."""
    scale, scaled = RewardScale(8, 0.99, torch.device("cpu")), []
    for epoch in range(6):
        reward = torch.full((64, 8), -size if kind == "negative" else size)
        ends = (torch.arange(64 * epoch, 64 * (epoch + 1)) % length == length - 1)[:, None].expand(64, 8)
        if kind == "nearly":
            reward *= 1 + 1e-4 * torch.randn(64, 8, generator=torch.Generator().manual_seed(epoch))
        if kind in ("single", "last"):
            reward[:-1] = reward[:, 1:] = 0.0
        if kind == "last" and epoch < 5:
            reward[:] = 0.0
        b = rollout(reward.clone(), ends.clone())
        scale.apply(b)
        scaled.append(float(b.reward.abs().max()))
        assert float(scale.factor) == pytest.approx(scaled[-1] / size, rel=1e-3) or not reward.any()
    seen = [largest for largest in scaled if largest]
    assert min(seen) > 0.02
    assert max(seen) < 5.5
    assert all(0.3 < b / a < 3 for a, b in pairwise(seen)), "from epoch to epoch it moves gradually"


def test_an_older_runs_moments_are_used_as_they_are() -> None:
    scale = RewardScale(AGENTS, GAMMA, torch.device("cpu"))
    state = scale.state_dict() | {"moments": torch.tensor([1000.0, 0.5, 90.0], dtype=torch.float64)}
    scale.load_state_dict(state)
    b = rollout(torch.zeros(4, AGENTS), torch.zeros(4, AGENTS, dtype=torch.bool))
    scale.apply(b)
    assert float(scale.factor) == pytest.approx((90 / 1000) ** -0.5, rel=0.03)
