"""Tests robots on CPU threads with the learner on a GPU: its update is the CPU's up to rounding.

python -m pytest -m gpu tests/robot/test_cuda.py
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

pytest.importorskip("mujoco")

from metta_fast.algorithms.ppo import PPO
from metta_fast.config.keys import PolicyConfig
from metta_fast.envs.robot.env import RobotFactory
from metta_fast.policy import make_policy
from tests.interpreter import gpu
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_learner import learnt_logprobs
from tests.ppo.test_rollout import weights

os.environ.setdefault(
    "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
)  # read at the first product, for runs equal to the bit

pytestmark = gpu
DEVICE = "cuda"
HORIZON = 16
SETTINGS = {
    "schedule": "adaptive",
    "desired_kl": 1e-5,
    "learning_rate": 1e-3,
    "recompute": "pass",
    "update_epochs": 4,
}


def ant(device: str, *, privileged: bool = False, core: str = "none", **keys: Any) -> PPO:
    """Episodes of 11 steps, so that rollouts hold ends."""
    factory = RobotFactory("ant", max_steps=11, privileged=privileged)
    torch.manual_seed(0)
    config = PolicyConfig(hidden_size=32, shared=False, activation="tanh", normalize_obs=True, core=core)
    keys = {"horizon": HORIZON, "bptt": 4, "backend": "threads", "tf32": False, **SETTINGS, **keys}
    ppo = make_ppo(factory, 8, policy=make_policy(config, factory.spec), device=device, **keys)
    ppo.learner._cpu_update = None
    return ppo


def give(rollout: PPO, to: PPO) -> None:
    """Another's rows, so that both learn from the same."""
    ours, theirs = to.buffers, rollout.buffers
    for name, leaf in theirs.obs.items():
        ours.obs[name].copy_(leaf)
    for name in ("mask", "reset", "action", "logprob", "value", "reward", "terminal", "truncation", "state"):
        getattr(ours, name).copy_(getattr(theirs, name))
    if not to._measured:  # the first moments are measured by a rollout, which `to` does not make
        to._measured, to._measures_again = rollout._measured, rollout._measures_again
        to.policy.normalizer.load_state_dict(rollout.policy.normalizer.state_dict())


@pytest.mark.parametrize(
    ("policy", "trainer"),
    [
        ({}, {"minibatches": 1}),  # orders of segments are drawn where the buffers lie
        ({}, {"minibatches": 4, "cpu_offload": True}),
        ({"privileged": True}, {"minibatches": 4, "cpu_offload": True}),
        ({"privileged": True, "core": "lstm"}, {"minibatches": 1}),
    ],
)
def test_updates_are_the_cpus(policy: dict[str, Any], trainer: dict[str, Any]) -> None:
    there, here = ant("cpu", **policy, **trainer), ant(DEVICE, **policy, **trainer)
    for epoch in range(3):
        there.collect()
        assert not there.buffers.mask[:HORIZON].all()
        give(there, here)
        for ppo in (there, here):
            ppo._learn(ppo._context())
            ppo.epoch += 1
        sums = here.learner.sums.cpu()
        torch.testing.assert_close(sums, there.learner.sums.cpu(), rtol=2e-3, atol=1e-4)
        assert here.learner.rate(0) == pytest.approx(there.learner.rate(0), rel=1e-6), epoch
    assert here.learner.rate(0) < 1e-3
    for (name, one), (_, other) in zip(here.policy.named_parameters(), there.policy.named_parameters()):
        assert one.device.type == DEVICE
        torch.testing.assert_close(
            one.cpu(), other, rtol=2e-3, atol=5e-5, msg=lambda m, name=name: f"{name}: {m}"
        )
    ours: Any = here.policy.normalizer
    theirs: Any = there.policy.normalizer
    assert ours.mean.device.type == DEVICE
    assert ours.count.item() == theirs.count.item() > 0
    for name in ("mean", "squares", "shift", "scale"):
        torch.testing.assert_close(getattr(ours, name).cpu(), getattr(theirs, name), rtol=1e-6, atol=1e-9)
    there.load_state_dict(here.state_dict())  # a card's checkpoint goes on without one
    assert there.learner.rate(0) == pytest.approx(here.learner.rate(0), rel=1e-6)
    for ppo in (there, here):
        ppo.rollout.vec.close()


@pytest.mark.parametrize("privileged", [False, True])
@pytest.mark.parametrize("compiled", [None, "default", "reduce-overhead", "graphs"])
def test_rollouts_fit_what_the_learner_sees(privileged: bool, compiled: str | None) -> None:
    keys: dict[str, Any] = {"compile": True, "compile_mode": compiled} if compiled else {}
    if compiled == "graphs":
        keys = {"compile": True, "cuda_graphs": True}
    ppo = ant(DEVICE, privileged=privileged, minibatches=2, blocks=2, **keys)
    before = weights(ppo)
    for _ in range(4):
        ppo.collect()
        assert all(leaf.device.type == DEVICE for leaf in ppo.buffers.obs.values())
        mask = ppo.buffers.mask[:HORIZON]
        learnt = torch.where(mask, learnt_logprobs(ppo), 0)
        torch.testing.assert_close(learnt, torch.where(mask, ppo.buffers.logprob, 0), rtol=2e-3, atol=2e-3)
        ppo.update()
    ppo.rollout.vec.close()
    assert torch.isfinite(weights(ppo)).all()
    assert not torch.equal(before, weights(ppo))
    assert ppo.notes == []


def test_runs_are_bit_identical_with_trainer_deterministic() -> None:
    first, second = (weights(run(ant(DEVICE, minibatches=2, deterministic=True), 3)) for _ in range(2))
    assert torch.equal(first, second)
