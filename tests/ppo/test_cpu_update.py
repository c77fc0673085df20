"""The C update of small networks is torch's, up to rounding: weights, moments, statistics."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from metta_fast.algorithms.ppo import PPO
from metta_fast.algorithms.ppo.c.c_update import unsupported
from metta_fast.algorithms.ppo.c.mlp_update import supports
from metta_fast.algorithms.ppo.step import SUMS
from metta_fast.config.keys import PolicyConfig
from metta_fast.policy import make_policy
from tests.ppo.envs import seen, tickers
from tests.ppo.stand_in import make_ppo

POLICY = {
    "hidden_size": 24,
    "shared": False,
    "activation": "tanh",
    "normalize_obs": True,
    "initial_log_std": -0.5,
}


def trained(
    epochs: int = 3, *, native: bool, policy: dict[str, Any], factory: Any = tickers, **trainer: Any
) -> tuple[PPO, list[list[float]]]:
    factory = factory(6, box=True)
    torch.manual_seed(0)
    made = make_policy(PolicyConfig(**POLICY | policy), factory.spec)
    settings = {"learning_rate": 3e-3, "update_epochs": 3, "entropy_coef": 0.01} | trainer
    ppo = make_ppo(factory, horizon=24, bptt=4, minibatches=3, policy=made, **settings)
    assert ppo.learner._cpu_update is not None
    if not native:
        ppo.learner._cpu_update = None
    sums = []
    for _ in range(epochs):
        ppo.collect()
        assert not ppo.buffers.mask[:24].all()
        ppo.update()
        sums.append(ppo.learner.sums.tolist())
    ppo.rollout.vec.close()
    return ppo, sums


@pytest.mark.parametrize(
    ("policy", "trainer"),
    [
        ({}, {}),
        ({"activation": "relu", "hidden_size": 8, "normalize_obs": False}, {"normalize_advantage": False}),
        ({"activation": "elu", "hidden_size": 72}, {"vf_clip_coef": 0.02, "max_grad_norm": 0.05}),
        ({}, {"recompute": "pass", "max_grad_norm": 0.0, "schedule": "adaptive", "clip_coef": 0.02}),
        ({}, {"factory": seen}),  # the value reads two leaves, the actions one
        ({"actor_obs": ["critic", "obs"], "critic_obs": ["obs"], "normalize_obs": False}, {"factory": seen}),
    ],
)
def test_it_is_torchs_update(policy: dict[str, Any], trainer: dict[str, Any]) -> None:
    (ours, our_sums), (theirs, their_sums) = (
        trained(native=native, policy=policy, **trainer) for native in (True, False)
    )
    for (name, one), (_, other) in zip(ours.policy.named_parameters(), theirs.policy.named_parameters()):
        torch.testing.assert_close(
            one, other, rtol=1e-3, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    torch.testing.assert_close(torch.tensor(our_sums), torch.tensor(their_sums), rtol=1e-3, atol=1e-4)
    assert our_sums[-1][SUMS.index("optimizer_steps")] == 9
    one, other = (ppo.learner.step.optimizer.state_dict()["state"] for ppo in (ours, theirs))
    for number, state in other.items():
        for key, value in state.items():
            torch.testing.assert_close(one[number][key], value, rtol=1e-3, atol=1e-6)


def test_target_kl_stops_before_the_step() -> None:
    _, sums = trained(native=True, policy={}, target_kl=1e-4, learning_rate=0.02)
    _, theirs = trained(native=False, policy={}, target_kl=1e-4, learning_rate=0.02)
    for one, other in zip(sums, theirs):
        assert one[-2:] == other[-2:]
        assert 0 < one[-1] < one[-2] < 9


def test_a_state_of_either_goes_on_with_the_other() -> None:
    ppo, _ = trained(native=True, policy={})
    after = []
    for native in (True, False):
        again, _ = trained(1, native=native, policy={})
        again.learner.load_state_dict(copy.deepcopy(ppo.learner.state_dict()))
        for name in (
            "obs",
            "action",
            "logprob",
            "value",
            "advantage",
            "returns",
            "mask",
            "reward",
            "terminal",
        ):
            own, other = getattr(again.buffers, name), getattr(ppo.buffers, name)
            for one, two in zip(own.values(), other.values()) if name == "obs" else [(own, other)]:
                one.copy_(two)
        again.learner.update(ppo._context(), 0)
        after.append(again.learner.sums[:5])
        assert float(next(iter(again.learner.step.optimizer.state.values()))["step"]) == 36
    torch.testing.assert_close(after[0], after[1], rtol=1e-3, atol=1e-5)


def test_bad_numbers_are_named_as_ever() -> None:
    from metta_fast.contracts.errors import NonFiniteError

    ppo, _ = trained(1, native=True, policy={})
    ppo.learner.update(ppo._context(), 0)
    ppo.buffers.returns[3, 2] = float("inf")
    ppo.learner._advantage = lambda: None  # type: ignore[method-assign]
    with pytest.raises(NonFiniteError, match="loss not finite"):
        ppo.update()


@pytest.mark.parametrize(
    ("policy", "trainer"),
    [
        ({"shared": True}, {}),
        ({"core": "lstm"}, {}),
        ({"squash": True}, {}),
        ({"state_std": True}, {}),
        ({"hidden_size": 20}, {}),
        ({}, {"advantage": "vtrace"}),
        ({}, {"recompute": "minibatch"}),
        ({}, {"gradient_accumulation": 3}),
    ],
)
def test_what_it_cannot_do_is_torchs(policy: dict[str, Any], trainer: dict[str, Any]) -> None:
    factory = tickers(6, box=True)
    made = make_policy(PolicyConfig(**POLICY | policy), factory.spec)
    ppo = make_ppo(factory, horizon=24, bptt=4, minibatches=3, policy=made, **trainer)
    assert ppo.learner._cpu_update is None
    config = ppo.config.trainer
    assert unsupported(made, config, ppo.device) or supports(made, ppo.buffers, config)
    ppo.collect()
    ppo.update()
    ppo.rollout.vec.close()


def test_a_hook_on_a_layer_is_called() -> None:
    """What stands for the whole network would pass it by."""
    factory, calls = tickers(6, box=True), []
    made: Any = make_policy(PolicyConfig(**POLICY), factory.spec)
    made.heads.register_forward_hook(lambda *_: calls.append(1))
    ppo = make_ppo(factory, horizon=24, bptt=4, minibatches=3, policy=made)
    assert ppo.learner._cpu_update is None
    ppo.collect()
    before = len(calls)
    ppo.update()
    assert len(calls) == before + 3
    ppo.rollout.vec.close()
