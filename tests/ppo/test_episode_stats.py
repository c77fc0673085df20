"""Compares episode statistics with a plain loop over rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.rollout.episode_stats import EpisodeStats, RecentReturns
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo, run

SPEC = EnvSpec("x", 1, {"obs": Leaf((1,), "float32")}, ActionSpec("discrete", (2,), (0,)), stats=("hearts",))
AGENTS = 3
CPU = torch.device("cpu")


def fill(buffers: Buffers, random: np.random.Generator) -> None:
    shape = buffers.horizon, buffers.num_agents
    buffers.mask[:-1] = torch.from_numpy(random.random(shape) < 0.8)
    buffers.reward.copy_(torch.from_numpy(random.integers(-3, 4, shape)))
    buffers.terminal.copy_(torch.from_numpy(random.random(shape) < 0.15))
    buffers.truncation.copy_(torch.from_numpy(random.random(shape) < 0.15))
    buffers.stats.copy_(torch.from_numpy(random.integers(0, 9, (*shape, 1))))


@given(seed=st.integers(0, 2**32), staggered=st.booleans(), horizon=st.integers(1, 12))
def test_equals_a_plain_loop(seed: int, staggered: bool, horizon: int) -> None:
    random = np.random.default_rng(seed)
    buffers = Buffers.allocate(
        SPEC, num_agents=AGENTS, horizon=horizon, bptt_horizon=1, state_shape=(0, 0), device=CPU
    )
    stats = EpisodeStats(SPEC, AGENTS, CPU)
    stats.restart(staggered=staggered)
    n = AGENTS
    total, length, skip = [0.0] * n, [0] * n, [staggered] * n
    for _ in range(3):
        fill(buffers, random)
        want = [0.0] * 4
        for t in range(horizon):
            for i in range(n):
                if not buffers.mask[t, i]:
                    continue
                total[i] += float(buffers.reward[t, i])
                length[i] += 1
                if buffers.terminal[t, i] or buffers.truncation[t, i]:
                    if not skip[i]:
                        for at, x in enumerate((1.0, total[i], length[i], float(buffers.stats[t, i, 0]))):
                            want[at] += x
                    total[i], length[i], skip[i] = 0.0, 0, False
        assert stats.add(buffers).tolist() == want


def test_means_by_name() -> None:
    stats = EpisodeStats(SPEC, AGENTS, CPU)
    first = {"env/return": 3.0, "env/length": 5.0, "env/hearts": 0.5}
    assert stats.means([2.0, 6.0, 10.0, 1.0]) == first | {"env/return_100": 3.0, "env/episodes": 2.0}
    assert set(stats.means([0.0, 0.0, 0.0, 0.0])) <= {"env/episodes"}


def test_the_mean_of_the_last_100_episodes() -> None:
    """Exact where the 100th last is an epoch's first; inside an epoch, its episodes count with its mean."""
    random, recent, returns = np.random.default_rng(0), RecentReturns(), []
    for _ in range(50):
        returns.append(random.normal(size=5))
        recent.add(5, returns[-1].mean())
        assert recent.mean() == pytest.approx(np.concatenate(returns)[-100:].mean())
    recent.add(30, 1.0)
    recent.add(90, 2.0)
    assert recent.mean() == pytest.approx(0.1 * 1.0 + 0.9 * 2.0)
    again = RecentReturns()
    again.load(json.loads(json.dumps(recent.state())))
    assert again.mean() == recent.mean()
    assert len(recent.state()) == 2
    recent.add(5000, 7.0)
    assert recent.mean() == 7.0


def test_a_resumed_run_goes_on_with_the_last_episodes() -> None:
    ppo, other = make_ppo(tickers(1), horizon=64), make_ppo(tickers(1), horizon=64)
    run(ppo, 2)
    other.load_state_dict(ppo.state_dict())
    assert other.episodes.recent.state() == ppo.episodes.recent.state() != []
    old = {name: value for name, value in ppo.state_dict().items() if name != "recent_returns"}
    other.load_state_dict(old)  # a checkpoint of before
    assert other.episodes.recent.state() == []


def test_a_run_reports_whole_episodes() -> None:
    """Over one epoch of 64 rows the mean length is that of the episodes that ended in it."""
    ppo = make_ppo(tickers(1), horizon=64, bptt=64, minibatches=1)
    run(ppo, 1)
    lengths, rows = [], 0
    for episode in range(64):
        length = 3 + (episode * 3) % 7
        if rows + length > 64:
            break
        lengths.append(length)
        rows += length + 1
    assert ppo.metrics()["env/length"] == sum(lengths) / len(lengths)
