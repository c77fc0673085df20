"""Learning rates by agent steps."""

from __future__ import annotations

import pytest

from metta_fast.ppo.schedule import learning_rate, progress
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_config, make_ppo, run


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [
        ("constant", [1e-3, 1e-3, 1e-3, 1e-3]),
        ("linear", [1e-3, 5e-4, 0.0, 0.0]),
        ("cosine", [1e-3, 5e-4, 0.0, 0.0]),
    ],
)
def test_schedules(schedule: str, rates: list[float]) -> None:
    config = make_config(schedule=schedule, total_timesteps=1000, learning_rate=1e-3).trainer
    assert [learning_rate(config, s) for s in (0, 500, 1000, 2000)] == pytest.approx(rates, abs=1e-12)
    assert progress(config, 2000) == 1


@pytest.mark.parametrize(("scaling", "factor"), [("none", 1.0), ("sqrt", 2.0), ("linear", 4.0)])
def test_scaling_with_the_minibatch(scaling: str, factor: float) -> None:
    config = make_config(lr_scaling=scaling, minibatch_size=4 * 16384, learning_rate=1e-3).trainer
    assert learning_rate(config, 0) == pytest.approx(1e-3 * factor)


def test_the_optimizer_follows_it() -> None:
    ppo = make_ppo(tickers(4), horizon=16, total_timesteps=200, learning_rate=1e-3)
    run(ppo, 2)
    second = learning_rate(ppo.config.trainer, int(ppo.metrics()["train/steps"]) // 2)
    assert 0 < second < 1e-3
    assert ppo.metrics()["train/learning_rate"] == ppo.learner.optimizer.param_groups[0]["lr"] < 1e-3
