"""Tests the figures of an update beside its losses: on every path the same, and as computed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from metta_fast.algorithms.ppo.advantage.figures import FIGURES, metrics
from metta_fast.config.keys import PolicyConfig
from metta_fast.policy import make_policy
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo
from tests.ppo.test_device_rollout import device_ppo

NO_STEP = {"optimizer_steps": 0.0, "gradient_norm": 0.0}


def trained(ppo: Any) -> dict[str, float]:
    ppo.collect()
    ppo.update()
    return {name.split("/")[1]: value for name, value in ppo.metrics().items()}


def policy(factory: Any, **keys: Any) -> Any:
    torch.manual_seed(0)
    return make_policy(PolicyConfig(hidden_size=16, initial_log_std=-0.5, **keys), factory.spec)


@pytest.mark.parametrize("paths", ["torch", "c", "device"])
def test_they_are_those_computed_by_hand(paths: str) -> None:
    factory = tickers(4, box=paths != "device")
    keys: Any = {"normalize_reward": True, "learning_rate": 0.0, "minibatches": 4}
    if paths == "device":
        ppo = device_ppo(factory, **keys)
    else:
        ppo = make_ppo(factory, policy=policy(factory, state_std=paths == "torch"), **keys)
        assert (ppo.learner._cpu_update is not None) == (paths == "c")
    found, b = trained(ppo), ppo.buffers
    live = b.mask[: b.horizon].numpy()
    returns, advantage = b.returns.numpy()[live], b.advantage.numpy()[live]
    assert found["explained_variance"] == pytest.approx(
        1 - np.var(advantage) / np.var(returns), rel=1e-4, abs=1e-5
    )
    assert found["samples_per_gradient_step"] == live.sum() / 4
    assert found["reward_scale"] == pytest.approx(float(ppo.reward_scale.factor))
    assert 0 < found["gradient_norm"] < 100
    if paths != "device":
        assert found["action_std"] == pytest.approx(math.exp(-0.5), rel=0.05)
    ppo.rollout.vec.close()


def test_what_there_is_not_is_left_out() -> None:
    """Discrete actions, rewards that are not scaled, returns that do not vary, no step."""
    names = {name.split("/")[1] for name in trained_metrics(normalize_reward=False)}
    assert not {"reward_scale", "action_std"} & names
    assert {"explained_variance", "gradient_norm"} <= names
    none = metrics(
        [math.nan if name in ("reward_scale", "action_std") else 0.0 for name in FIGURES], NO_STEP, 100
    )
    assert none == {}


def trained_metrics(**keys: Any) -> dict[str, float]:
    ppo = make_ppo(tickers(4), **keys)
    ppo.collect()
    ppo.update()
    ppo.rollout.vec.close()
    return ppo.metrics()


def test_values_that_are_right_explain_all_and_one_number_for_all_nothing() -> None:
    def explained(returns: list[float], advantage: list[float]) -> float:
        r, a = np.array(returns), np.array(advantage)
        sums = {"rows": len(r), "returns": r.sum(), "returns_squared": (r**2).sum()}
        sums |= {"advantage": a.sum(), "advantage_squared": (a**2).sum()}
        return metrics([sums.get(name, math.nan) for name in FIGURES], NO_STEP, 4)["loss/explained_variance"]

    assert explained([1, 2, 3, 4], [0, 0, 0, 0]) == 1
    assert explained([1, 2, 3, 4], [-1, 0, 1, 2]) == pytest.approx(0)
    assert explained([1, 2, 3, 4], [-3, -1, 1, 3]) == pytest.approx(-3)
