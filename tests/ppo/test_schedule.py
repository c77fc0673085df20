"""Tests learning rates by agent steps."""

from __future__ import annotations

import pytest
import torch

from metta_fast.algorithms.ppo.schedule import adapted, learning_rate, progress
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_config, make_ppo, run
from tests.ppo.test_rollout import weights


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [1e-3, 1e-3, 1e-3, 1e-3]),
        ("linear", [1e-3, 5e-4, 0.0, 0.0]),
        ("cosine", [1e-3, 5e-4, 0.0, 0.0]),
    ],
)
def test_schedules(schedule: str, rates: list[float]) -> None:
    config = make_config(schedule=schedule, total_timesteps=1100, batch_size=100, learning_rate=1e-3).trainer
    assert [learning_rate(config, s) for s in (0, 500, 1000, 2000)] == pytest.approx(rates, abs=1e-12)
    assert progress(config, 2000) == 1


def test_a_run_of_one_update_learns_at_the_rate_of_the_start() -> None:
    config = make_config(schedule="linear", total_timesteps=100, batch_size=256, learning_rate=1e-3).trainer
    assert learning_rate(config, 0) == 1e-3
    assert learning_rate(config, 90) == 0  # masked rows left a few steps over


@pytest.mark.parametrize(("total", "batch"), [(640, 64), (1000, 64), (65, 64), (64, 64), (63, 64)])
def test_the_last_update_has_the_schedules_last_value(total: int, batch: int) -> None:
    config = make_config(
        schedule="linear", total_timesteps=total, batch_size=batch, learning_rate=1.0
    ).trainer
    rates = [learning_rate(config, steps) for steps in range(0, total, batch)]
    assert rates[0] == 1
    assert rates == sorted(rates, reverse=True)
    assert [rate for rate in rates if rate == 0] == rates[1:][-1:]  # one update, the last


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1.0), ("sqrt", 2.0), ("linear", 4.0)])
def test_scaling_with_the_minibatch(scaling: str, factor: float) -> None:
    config = make_config(lr_scaling=scaling, minibatch_size=4 * 16384, learning_rate=1e-3).trainer
    assert learning_rate(config, 0) == pytest.approx(1e-3 * factor)


def test_the_optimizer_follows_it() -> None:
    ppo = make_ppo(tickers(4), horizon=16, total_timesteps=200, learning_rate=1e-3)
    run(ppo, 2)
    second = learning_rate(ppo.config.trainer, int(ppo.metrics()["train/steps"]) // 2)
    assert 0 < second < 1e-3
    assert ppo.metrics()["train/learning_rate"] == ppo.learner.step.optimizer.param_groups[0]["lr"] < 1e-3


def test_adaptive_moves_the_rate_towards_the_desired_kl() -> None:
    def after(rate: float, kl: float) -> float:
        return float(adapted(torch.tensor(rate, dtype=torch.float64), torch.tensor(kl), 0.01))

    assert after(1e-3, 0.021) == pytest.approx(1e-3 / 1.5)
    assert after(1e-3, 0.004) == pytest.approx(1.5e-3)
    for kl in (0.019, 0.006, 0.0, float("nan")):
        assert after(1e-3, kl) == 1e-3
    assert after(9e-3, 0.004) == pytest.approx(1e-2)
    assert after(1.2e-5, 1.0) == pytest.approx(1e-5)
    assert after(0.1, 0.004) == 0.1
    assert after(1e-6, 1.0) == 1e-6


@pytest.mark.parametrize(("desired", "factor"), [(1e3, 1.5), (1e-8, 1 / 1.5)])
def test_the_optimizer_follows_the_adaptive_rate_and_a_resume_goes_on(desired: float, factor: float) -> None:
    keys = {"schedule": "adaptive", "desired_kl": desired, "learning_rate": 1e-3, "update_epochs": 2}
    ppo = make_ppo(tickers(4), deterministic=True, **keys)
    ppo.collect()
    ppo.update()
    assert ppo.metrics()["train/learning_rate"] == pytest.approx(1e-3 * factor**2)
    state, env = ppo.state_dict(), ppo.rollout.vec.state_dict()
    resumed = make_ppo(tickers(4), deterministic=True, **keys)
    resumed.rollout.vec.load_state_dict(env)
    resumed.load_state_dict(state)
    for each in (ppo, resumed):
        run(each, 1)
        assert each.learner.step.optimizer.param_groups[0]["lr"] == pytest.approx(1e-3 * factor**4)
    assert torch.equal(weights(ppo), weights(resumed))
