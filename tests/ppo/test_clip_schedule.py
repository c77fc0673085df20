"""The clip coefficient follows its schedule into every form of the update: the weights are those of a learner that was
built with the coefficient of that moment. (test_gpu_tail.py and test_gpu_loop.py: on a GPU.)"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.schedule import clip_coef
from metta_fast.config.keys import PolicyConfig
from metta_fast.policy import make_policy
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_config, make_ppo
from tests.ppo.test_rollout import weights


@pytest.mark.parametrize(
    ("schedule", "clips"),
    [("constant", [0.3, 0.3, 0.3]), ("linear", [0.3, 0.15, 0.0]), ("cosine", [0.3, 0.15, 0.0])],
)
def test_schedules(schedule: str, clips: list[float]) -> None:
    config = make_config(clip_coef=0.3, clip_schedule=schedule, total_timesteps=1100, batch_size=100).trainer
    assert [clip_coef(config, steps) for steps in (0, 500, 1000)] == pytest.approx(clips, abs=1e-12)


def learner(form: str, **trainer: Any) -> PPO:
    """A PPO whose update clips many ratios, in plain torch, compiled, or by the C kernel."""
    factory = tickers(4, box=form == "C")
    torch.manual_seed(0)
    policy = None
    if form == "C":
        policy = make_policy(PolicyConfig(hidden_size=16, shared=False), factory.spec)
    keys = {"learning_rate": 0.02, "schedule": "constant", "update_epochs": 3, "deterministic": True}
    keys |= {"compile": form == "compiled", "total_timesteps": 200} | trainer
    ppo = make_ppo(factory, policy=policy, **keys)
    assert (ppo.learner._cpu_update is not None) == (form == "C")
    return ppo


def epoch(ppo: PPO) -> torch.Tensor:
    ppo.collect()
    ppo.update()
    return weights(ppo)


@pytest.mark.parametrize("form", ["plain", pytest.param("compiled", marks=pytest.mark.slow), "C"])
def test_an_update_is_that_of_a_learner_built_with_its_clip(form: str) -> None:
    ppo = learner(form, clip_coef=0.2, clip_schedule="linear")
    epoch(ppo)
    state, env = ppo.state_dict(), ppo.rollout.vec.state_dict()
    clip = clip_coef(ppo.config.trainer, ppo.steps)
    assert 0.05 < clip < 0.15
    learnt = epoch(ppo)
    assert ppo.metrics()["train/clip_coef"] == clip
    assert ppo.metrics()["loss/clip_fraction"] > 0.1
    built = []
    for other in (clip, 0.2):
        fresh = learner(form, clip_coef=other)
        fresh.rollout.vec.load_state_dict(env)
        fresh.load_state_dict(state)
        built.append(epoch(fresh))
        fresh.rollout.vec.close()
    ppo.rollout.vec.close()
    assert torch.equal(learnt, built[0])
    assert not torch.allclose(learnt, built[1], rtol=1e-3, atol=1e-4)
