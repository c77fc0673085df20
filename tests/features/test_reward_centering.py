"""Compares reward centering with a plain loop; resumes are exact, and unfinished rows take no part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from metta_fast.features import make_features
from metta_fast.features.reward_centering import RewardCentering
from metta_fast.storage.altered import WrongState
from tests.features.exact import check_resume
from tests.ppo.envs import Line, counted, tickers
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_device_rollout import device_ppo
from tests.ppo.test_rollout import weights


def hooks(**keys: Any) -> Any:
    return make_features({"reward_centering": {"rate": 0.3, "interval_epochs": 1} | keys})


def test_it_is_the_running_mean_without_its_start() -> None:
    """Rewards of unmasked rows lose r̄, others stay: by loops in float64."""
    ppo = make_ppo(tickers(5), hooks=hooks())
    total, weight = 0.0, 0.0
    for _ in range(4):
        ppo.collect()
        b = ppo.buffers
        mask, before = b.mask[:-1].numpy().copy(), b.reward.numpy().copy()
        live = [float(x) for x, m in zip(before.flat, mask.flat) if m]
        mean = sum(live) / len(live)
        total, weight = 0.7 * total + 0.3 * mean, 0.7 * weight + 0.3
        ppo.update()
        wanted = np.where(mask, before - np.float32(total / weight), before)
        np.testing.assert_allclose(b.reward.numpy(), wanted, rtol=1e-5, atol=1e-5)
        assert ppo.metrics()["features/reward_mean"] == pytest.approx(total / weight)
    ppo.rollout.vec.close()


def test_a_constant_reward_is_worth_nothing() -> None:
    from metta_fast.envs.python_env import PythonEnvFactory

    line = counted(PythonEnvFactory(lambda index: Line(length=50), name="line"), 4)
    ppo = run(make_ppo(line, hooks=hooks()), 1)
    assert float(ppo.buffers.reward[ppo.buffers.mask[:-1]].abs().max()) < 1e-6


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("box", [False, True])
def test_a_resume_is_exact(lstm: bool, box: bool) -> None:
    keys: Any = {"deterministic": True, "normalize_reward": True}
    whole = check_resume(lambda: make_ppo(tickers(4, box=box), lstm=lstm, hooks=hooks(), **keys))
    assert not torch.equal(weights(whole), weights(run(make_ppo(tickers(4, box=box), lstm=lstm, **keys), 4)))


def test_launched_ahead_it_is_the_same() -> None:
    """With environments on the device the next rollout begins before the host reads the last update."""
    found = [
        weights(run(device_ppo(tickers(4), ahead=ahead, hooks=hooks(interval_epochs=0)), 4))
        for ahead in (False, True)
    ]
    assert torch.equal(*found)


def test_a_damaged_state_is_named() -> None:
    with pytest.raises(WrongState, match=r"features\.reward_centering\.moments"):
        RewardCentering(0.1).load_state_dict({"moments": torch.zeros(3)})


def test_a_rollout_that_is_not_finite_leaves_the_mean() -> None:
    ppo = make_ppo(tickers(2), hooks=hooks())
    ppo.collect()
    ppo.rollout.vec.close()
    ppo.buffers.reward[0] = torch.nan
    own = ppo.hooks.states["reward_centering"]
    ppo.hooks.on_update[0](ppo._context())
    assert own.state_dict()["moments"].tolist() == [0.0, 0.0]
