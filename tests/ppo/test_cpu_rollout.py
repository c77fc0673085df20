"""Compares a grid policy's rollout in C with torch's: same actions, log-probabilities and values up to rounding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metta_fast.algorithms.ppo import PPO
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import Leaf
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.policy import make_policy
from metta_fast.policy.fused_act.c_act import CpuAct
from metta_fast.rollout.act import make_act
from metta_fast.rollout.c_rollout import CpuRollout
from metta_fast.rollout.rollout import Rollout
from tests.policy.specs import flat_spec, random_obs
from tests.ppo.envs import tickers
from tests.ppo.stand_in import make_ppo
from tests.ppo.test_mlp_update import grids


@settings(max_examples=30, deadline=None)
@given(
    nvec=st.lists(st.integers(1, 11), min_size=1, max_size=4).map(tuple),
    hidden=st.integers(1, 20).map(lambda n: 8 * n),
    rows=st.integers(1, 200),
    seed=st.integers(0, 2**32),
    threads=st.integers(1, 3),
)
def test_any_size(nvec: tuple[int, ...], hidden: int, rows: int, seed: int, threads: int) -> None:
    torch.manual_seed(seed)
    spec = flat_spec(nvec, compact=Leaf((387,), "uint8"))
    policy: Any = make_policy(PolicyConfig(hidden_size=hidden), spec)
    with torch.no_grad():
        policy.heads.weight.mul_(100)
        policy.heads.bias.normal_()
    obs = random_obs(spec, 1, rows, seed=seed)
    noise = torch.rand(1, rows, len(nvec))
    noise[0, 0] = 1 - 2**-24  # as close to 1 as it comes
    with torch.inference_mode():
        expected = make_act(policy)(
            obs, torch.zeros(0, rows, 0), torch.zeros(1, rows, dtype=torch.bool), noise, None
        )
    action, given_ = torch.full((2, rows, len(nvec)), -1, dtype=torch.int32)
    logprob, value, again = torch.full((3, rows), float("nan"))
    act = CpuAct(policy, threads)
    act.weights()
    seen, kept = obs["compact"][0], torch.zeros(2, rows, 387, dtype=torch.uint8)
    act(seen.data_ptr(), kept[0], noise[0], action, given_.data_ptr(), logprob, value)
    act.values(seen.data_ptr(), kept[1], again)
    assert torch.equal(kept[0], seen)
    assert torch.equal(kept[1], seen)
    assert torch.equal(value, again)
    assert torch.equal(action, given_)
    torch.testing.assert_close(value, expected[2][0], rtol=1e-4, atol=1e-4)
    same = (action == expected[0][0]).all(-1)
    assert int((~same).sum()) <= 1 + rows // 50  # noise within rounding of a boundary
    torch.testing.assert_close(logprob[same], expected[1][0][same], rtol=1e-3, atol=1e-3)


def made(kind: str, *, torchs: bool = False, **keys: Any) -> PPO:
    torch.manual_seed(0)
    factory = grids(kind)
    config = PolicyConfig(name="tokens" if kind == "tokens" else "mlp", hidden_size=40)
    ppo = make_ppo(factory, horizon=24, bptt=4, policy=make_policy(config, factory.spec), **keys)
    assert type(ppo.rollout) is CpuRollout
    if torchs:
        ppo.rollout = Rollout(ppo.vec, ppo.policy, ppo.buffers, **ppo._common)
    return ppo


@pytest.mark.parametrize("kind", ["compact", "dense", "tokens"])
def test_a_rollout_is_torchs(kind: str) -> None:
    ours, theirs = made(kind, blocks=3, zero_copy=kind != "dense"), made(kind, torchs=True)
    for _ in range(2):
        for ppo in (ours, theirs):
            ppo.collect()
        for name in ("action", "mask", "reward", "terminal", "truncation", "reset"):
            assert torch.equal(getattr(ours.buffers, name), getattr(theirs.buffers, name)), name
        assert torch.equal(ours.buffers.obs["obs"], theirs.buffers.obs["obs"])
        for name in ("value", "logprob"):
            one, other = getattr(ours.buffers, name), getattr(theirs.buffers, name)
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    for ppo in (ours, theirs):
        ppo.vec.close()


def test_the_learner_sees_the_rollout_and_the_rollout_new_weights() -> None:
    """Ratio 1 in the first minibatch of each epoch."""
    ppo = made("compact", minibatches=1, learning_rate=0.02)
    for _ in range(3):
        ppo.collect()
        ppo.update()
        assert ppo.metrics()["loss/clip_fraction"] == 0
        assert abs(ppo.metrics()["loss/kl"]) < 1e-6
    ppo.vec.close()


def test_weights_that_are_not_finite_are_named() -> None:
    ppo = made("compact")
    ppo.collect()
    with torch.no_grad():
        ppo.policy.heads.bias[2] = float("nan")
    with pytest.raises(NonFiniteError, match="log-probability is nan"):
        ppo.collect()
    ppo.vec.close()


@pytest.mark.parametrize(
    "keys", [{"policy": {"core": "lstm"}}, {"policy": {"activation": "elu"}}, {"precision": "bf16"}]
)
def test_what_it_cannot_do_is_torchs(keys: dict[str, Any]) -> None:
    factory = grids("compact")
    policy = make_policy(PolicyConfig(hidden_size=16, **keys.pop("policy", {})), factory.spec)
    ppo = make_ppo(factory, horizon=24, bptt=4, policy=policy, **keys)
    assert type(ppo.rollout) is Rollout
    ppo.collect()
    ppo.vec.close()
    ppo = make_ppo(tickers(3))
    assert type(ppo.rollout) is Rollout
    ppo.vec.close()
