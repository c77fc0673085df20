"""Tests asymmetric critics: bit-identical if both read the same leaves, better if the critic reads more."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from metta_fast.algorithms.ppo import PPO
from metta_fast.config.keys import PolicyConfig
from metta_fast.config.policy_inputs import reads
from metta_fast.contracts.errors import UserError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.policy import make_policy
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from tests.ppo.envs import seen, tickers
from tests.ppo.stand_in import make_ppo, run

APART = {"hidden_size": 24, "shared": False, "activation": "tanh"}


def trained(factory: Any, *, torchs: bool = False, bptt: int = 4, **policy: Any) -> PPO:
    torch.manual_seed(0)
    made = make_policy(PolicyConfig(**APART | policy), factory.spec)
    ppo = make_ppo(
        factory, horizon=24, bptt=bptt, minibatches=3, policy=made, update_epochs=2, learning_rate=3e-3
    )
    if torchs:
        ppo.learner._cpu_update = None
    return run(ppo, 3)


@pytest.mark.parametrize("torchs", [False, True])
@pytest.mark.parametrize("policy", [{}, {"normalize_obs": True}, {"core": "lstm"}, {"core": "mingru"}])
def test_a_value_that_reads_a_copy_of_what_the_actions_read_learns_the_same_to_the_bit(policy, torchs):
    apart = trained(seen(4, box=True), critic_obs=["critic"], torchs=torchs, **policy)
    plain = trained(tickers(4, box=True), torchs=torchs, **policy)
    assert (apart.policy.actor_leaves, apart.policy.critic_leaves) == (("obs",), ("critic",))
    assert (apart.learner._cpu_update is None) == (torchs or "core" in policy)
    own, other = dict(apart.policy.named_parameters()), dict(plain.policy.named_parameters())
    assert own.keys() == other.keys()
    for name, weight in own.items():
        assert torch.equal(weight, other[name]), name
    for name in ("value", "logprob", "action", "advantage"):
        assert torch.equal(getattr(apart.buffers, name), getattr(plain.buffers, name)), name
    assert torch.equal(apart.learner.sums, plain.learner.sums)


@pytest.mark.parametrize("core", ["none", "lstm"])
def test_what_acts_needs_only_the_actors_leaves(core):
    policy: Any = make_policy(PolicyConfig(**APART, core=core, normalize_obs=True), seen(2, box=True).spec)
    obs = {name: torch.randn(3, 2, 3) for name in ("critic", "obs")}
    state = torch.randn(policy.state_shape[0], 2, policy.state_shape[1])
    reset = torch.zeros(3, 2, dtype=torch.bool)
    whole, other = policy(obs, state, reset), policy(obs | {"critic": obs["obs"]}, state, reset)
    for acting in (policy({"obs": obs["obs"]}, state, reset), policy(obs["obs"], state, reset)):
        assert torch.equal(acting.params, whole.params)
        assert acting.value.isnan().all()
        actors = len(state) // 2
        assert torch.equal(acting.state[:actors], whole.state[:actors])
        assert torch.equal(acting.state[actors:], state[actors:])
    assert torch.equal(other.params, whole.params)
    assert not torch.equal(other.value, whole.value)


class Hidden(gymnasium.Env):
    """Episodes of 8 steps, all rewards +1 or all −1: which, only `truth` tells."""

    metadata = {"privileged": ["truth"]}  # noqa: RUF012 - Gymnasium's own form
    observation_space = gymnasium.spaces.Dict(
        step=gymnasium.spaces.Box(0, 1, (1,), np.float32), truth=gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    )
    action_space = gymnasium.spaces.Discrete(2)

    def _obs(self):
        return {"step": np.array([self.t / 8], np.float32), "truth": np.array([self.sign], np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.sign = 0, float(self.np_random.choice([-1, 1]))
        return self._obs(), {}

    def step(self, action):
        self.t += 1
        return self._obs(), self.sign, self.t == 8, False, {}


def test_a_value_that_sees_what_is_hidden_predicts_it():
    factory = PythonEnvFactory(lambda index: Hidden(), name="hidden")
    assert factory.spec.privileged == ("truth",)
    losses = []
    for critic in (None, ["step"]):
        torch.manual_seed(0)
        policy = make_policy(PolicyConfig(**APART, critic_obs=critic), factory.spec)
        ppo = make_ppo(
            factory, 8, horizon=32, minibatches=4, policy=policy, update_epochs=4, learning_rate=3e-3
        )
        losses.append(run(ppo, 25).metrics()["loss/value"])
    told, blind = losses
    assert blind > 1.0
    assert told < 0.1 * blind


def spec_of(*privileged: str):
    class Named(Hidden):
        metadata = {"privileged": list(privileged)}  # noqa: RUF012

    return PythonEnvFactory(lambda index: Named(), name="hidden").spec


def test_who_reads_what():
    told, plain = spec_of("truth"), spec_of()
    assert reads(PolicyConfig(shared=False), told) == (("step",), ("step", "truth"))
    assert reads(PolicyConfig(), plain) == (("step", "truth"), ("step", "truth"))
    chosen = PolicyConfig(shared=False, actor_obs=["truth", "step"], critic_obs=["truth"])
    assert reads(chosen, told) == (("step", "truth"), ("truth",))
    assert reads(PolicyConfig(actor_obs=["step"], critic_obs=["step"]), told) == (("step",), ("step",))


@pytest.mark.parametrize(
    ("privileged", "keys", "message"),
    [
        (["truth"], {}, r"hidden tells that truth is for the critic alone; give policy\.shared=false"),
        ([], {"critic_obs": ["step"]}, r"read by one encoder \(policy\.shared=true\); give policy\.shared=false"),
        ([], {"actor_obs": ["stap"]}, r"policy\.actor_obs=\[stap\]: hidden gives no 'stap'; did you mean 'step'\?"),
        ([], {"critic_obs": []}, r"policy\.critic_obs=\[\]: nothing is left to read; it gives step, truth"),
        (["step", "truth"], {"shared": False}, "every leaf is privileged"),
        ([], {"name": "my.Net", "actor_obs": ["step"]}, r"policy\.actor_obs=\[step\]: my\.Net is your own"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told(privileged, keys, message):
    with pytest.raises(UserError, match=message):
        reads(PolicyConfig(**keys), spec_of(*privileged))


@pytest.mark.parametrize("given", ["truth", ["truth", "other"], [["truth"]], 3])
def test_what_an_environment_tells_wrongly_is_told(given):
    class Wrong(Hidden):
        metadata = {"privileged": given}  # noqa: RUF012

    with pytest.raises(
        UserError, match=r"metadata\['privileged'\] is .*expected a list of leaves among step, truth"
    ):
        PythonEnvFactory(lambda index: Wrong(), name="hidden")


def test_the_keys_are_checked_before_anything_starts():
    with pytest.raises(
        UserError, match=r"policy\.critic_obs=obs: expected a list of names, as \[a, b\] or null"
    ):
        compose(["hardware=cpu", "env=counter", "policy.critic_obs=obs"])
    with pytest.raises(UserError, match=r"policy\.critic_obs=\[state\]: counter gives no 'state'"):
        resolve(compose(["hardware=cpu", "env=counter", "policy.shared=false", "policy.critic_obs=[state]"]))
