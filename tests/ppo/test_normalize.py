"""Tests observation normalisation: moments over unmasked rows, fixed within an epoch, saved with the policy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from metta_fast.algorithms.ppo.loss_terms import STATS
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.errors import UserError
from metta_fast.envs.grid.env import GridFactory
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.policy import make_policy, normalize
from metta_fast.policy.normalize import Normalizer
from tests.ppo.envs import Ticker, tickers
from tests.ppo.stand_in import make_ppo, run
from tests.ppo.test_device_rollout import device_ppo, figures, same
from tests.ppo.test_rollout import weights

SPEC = tickers(4).spec
AGENTS, HORIZON = 4, 12


def rollout(seed: int) -> Any:
    """What `take` reads of Buffers; masked rows hold what would spoil everything."""
    rng = np.random.default_rng(seed)
    mask = torch.from_numpy(rng.random((HORIZON + 1, AGENTS)) > 0.2)
    obs = rng.normal(size=(HORIZON + 1, AGENTS, 3)) * [1e-3, 1.0, 300.0] + [5.0, 0.0, 1e4]
    b = SimpleNamespace(horizon=HORIZON, num_agents=AGENTS, mask=mask)
    b.obs = {"obs": torch.from_numpy(obs.astype(np.float32))}
    b.obs["obs"][~mask] = torch.nan
    return b


def test_the_moments_are_those_of_all_unmasked_rows() -> None:
    own, seen = Normalizer(SPEC), []
    for seed in range(5):
        b = rollout(seed)
        own.take(b)
        seen.append(b.obs["obs"][:HORIZON][b.mask[:HORIZON]].double())
    rows = torch.cat(seen)
    assert own.count == len(rows)
    torch.testing.assert_close(own.mean, rows.mean(0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(own.squares / own.count, rows.var(0, correction=0), rtol=1e-9, atol=0.0)
    out = own({"obs": rows.float().view(1, -1, 3)})["obs"][0]
    torch.testing.assert_close(out.mean(0), torch.zeros(3), atol=5e-2, rtol=0)
    torch.testing.assert_close(out[:, 1:].std(0), torch.ones(2), atol=5e-3, rtol=0)


def test_rows_taken_in_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = Normalizer(SPEC), Normalizer(SPEC)
    whole.take(rollout(0))
    monkeypatch.setattr(normalize, "CHUNK", 5 * AGENTS * 3)
    parts.take(rollout(0))
    assert whole.count == parts.count
    torch.testing.assert_close(whole.squares, parts.squares, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("value", [0.1, 123.456, -77.7, 1e6])
def test_numbers_that_never_change_become_0(value: float) -> None:
    own, b = Normalizer(SPEC), rollout(0)
    b.obs["obs"].fill_(value)
    for _ in range(50):
        own.take(b)
    assert not own(b.obs)["obs"].any()


def test_before_the_first_rollout_nothing_changes_and_after_it_large_numbers_are_clipped() -> None:
    own = Normalizer(SPEC)
    x = torch.tensor([[[0.5, -2.0, 9.0]]])
    assert torch.equal(own({"obs": x})["obs"], x)
    own.take(rollout(0))
    assert own({"obs": torch.full((1, 1, 3), 1e9)})["obs"].flatten().tolist() == [10.0] * 3


def test_numbers_that_are_not_finite_change_nothing() -> None:
    own = Normalizer(SPEC)
    own.take(rollout(0))
    before = {name: value.clone() for name, value in own.state_dict().items()}
    bad = rollout(1)
    bad.mask[:] = True
    own.take(bad)
    assert all(torch.equal(before[name], value) for name, value in own.state_dict().items())


def make(**keys: Any) -> Any:
    torch.manual_seed(0)
    policy = make_policy(PolicyConfig(hidden_size=16, normalize_obs=True), SPEC)
    return make_ppo(tickers(4), policy=policy, deterministic=True, **keys)


def test_the_learner_sees_what_the_rollout_saw() -> None:
    """The first pass finds ratio 1 in the third epoch too: KL and clip fraction are 0."""
    ppo = make(minibatches=1)
    for _ in range(2):
        ppo.collect()
        ppo.update()
    before = ppo.policy.normalizer.mean.clone()
    ppo.collect()
    assert torch.equal(before, ppo.policy.normalizer.mean)
    ppo.update()
    ppo.rollout.vec.close()
    assert not torch.equal(before, ppo.policy.normalizer.mean)
    sums = dict(zip(STATS, ppo.learner.sums.tolist()))
    assert sums["kl"] == pytest.approx(0, abs=1e-7)
    assert sums["clip_fraction"] == 0
    counted = ppo.policy.normalizer.count.item()
    assert counted == ppo.steps > 0


def test_blocks_and_threads_change_nothing_and_a_resume_goes_on() -> None:
    serial, threads = make(blocks=2), make(blocks=2, backend="threads", threads=2)
    for ppo in (serial, threads):
        for _ in range(2):
            ppo.collect()
            ppo.update()
    state, env = serial.state_dict(), serial.rollout.vec.state_dict()
    resumed = make(blocks=2)
    resumed.rollout.vec.load_state_dict(env)
    resumed.load_state_dict(state)
    for ppo in (serial, threads, resumed):
        run(ppo, 2)
    for other in (threads, resumed):
        assert torch.equal(weights(serial), weights(other))
        for name, value in serial.policy.normalizer.state_dict().items():
            assert torch.equal(value, other.policy.normalizer.state_dict()[name]), name


def test_a_rollout_ahead_changes_nothing() -> None:
    """With environments on the policy's device; nor does it with a learning rate that follows the KL."""
    keys: dict[str, Any] = {"deterministic": True, "schedule": "adaptive"}
    ahead, plain = device_ppo(tickers(4), ahead=True, **keys), make_ppo(tickers(4), **keys)
    for ppo in (ahead, plain):
        normalize.normalize(ppo.policy, SPEC)
    for _ in range(4):
        for ppo in (ahead, plain):
            ppo.collect()
            ppo.update()
        same(ahead.state_dict(), plain.state_dict())
        assert figures(ahead) == figures(plain)
    assert plain.policy.normalizer.count == plain.steps


def test_a_state_holds_copies_and_a_policy_made_anew_has_the_moments() -> None:
    ppo = make()
    ppo.collect()
    ppo.update()
    state = ppo.state_dict()["policy"]
    loaded = make_policy(PolicyConfig(hidden_size=16, normalize_obs=True), SPEC)
    loaded.load_state_dict(state)
    obs = {"obs": ppo.buffers.obs["obs"][:2]}
    given = obs, loaded.initial_state(4), torch.zeros(2, 4, dtype=torch.bool)
    torch.testing.assert_close(loaded(*given).value, ppo.policy(*given).value)
    assert torch.equal(loaded(given[0]["obs"], *given[1:]).value, loaded(*given).value)
    plain = make_policy(PolicyConfig(hidden_size=16), SPEC)
    plain.load_state_dict({k: v for k, v in state.items() if not k.startswith("normalizer.")})
    normalized = {"obs": loaded.normalizer(obs)["obs"]}
    assert torch.equal(plain(normalized, *given[1:]).value, loaded(*given).value)
    run(ppo, 1)
    assert not torch.equal(state["normalizer.mean"], ppo.policy.normalizer.mean)


def test_the_first_epoch_is_normalised_by_a_rollout_that_is_not_learnt_from() -> None:
    """The environments are then reset; the moments are those of the rows that were learnt from, once they are there."""
    ppo = make()
    ppo.collect()
    own, b = ppo.policy.normalizer, ppo.buffers
    assert own.count > 0
    assert b.reset[0].all()
    live = b.mask[: b.horizon]
    seen = own({"obs": b.obs["obs"][: b.horizon]})["obs"][live]
    assert abs(float(seen[:, 2].mean())) < 0.5  # the step; the episode's number goes on
    assert 0.3 < float(seen[:, 2].std()) < 3
    assert (ppo.steps, ppo.epoch) == (0, 0)
    ppo.update()
    assert own.count == ppo.steps == live.sum()
    for _ in range(2):
        ppo.collect()
        assert own.count == ppo.steps, "later epochs collect once"
        ppo.update()
    ppo.rollout.vec.close()


@pytest.mark.parametrize("device", [False, True])
def test_what_the_first_rollout_gave_leaves_no_trace(device: bool) -> None:
    """But for the moments: the reward scale and the running episodes are those of the rows that were learnt from."""
    keys: Any = {"normalize_reward": True, "deterministic": True}
    ppo = device_ppo(tickers(4), **keys) if device else make_ppo(tickers(4), **keys)
    normalize.normalize(ppo.policy, SPEC)
    ppo.collect()
    ppo.update()
    assert ppo.reward_scale.moments[0] == ppo.steps or device  # a rollout ahead is in it already
    assert ppo.metrics()["env/length"] <= 9
    ppo.rollout.vec.close() if not device else None


def test_without_it_a_policy_is_as_it_was() -> None:
    plain = make_policy(PolicyConfig(hidden_size=16), SPEC)
    assert plain.normalizer is None
    assert not any("normalizer" in name for name in plain.state_dict())


def test_integers_are_symbols() -> None:
    with pytest.raises(UserError, match=r"policy.normalize_obs=true, but .*uint8"):
        make_policy(PolicyConfig(normalize_obs=True), GridFactory().spec)


class Mixed(Ticker):
    """A byte beside the numbers."""

    def __init__(self, index: int) -> None:
        import gymnasium

        super().__init__(index)
        byte = gymnasium.spaces.Box(0, 255, (2,), np.uint8)
        self.observation_space = gymnasium.spaces.Dict({"byte": byte, "number": self.observation_space})

    def _obs(self) -> Any:
        return {"byte": np.full(2, 7, np.uint8), "number": super()._obs()}


def test_only_numbers_of_a_mixed_observation_change() -> None:
    spec = PythonEnvFactory(Mixed, name="mixed").spec
    own = Normalizer(spec)
    assert list(own.parts.values()) == [(0, 3)]
    own.shift.fill_(1.0)
    shaped = {
        name: torch.ones(1, 2, *leaf.shape).to(getattr(torch, leaf.dtype)) for name, leaf in spec.obs.items()
    }
    out = own(shaped)
    number = next(iter(own.parts))
    assert not out[number].any()
    other = next(name for name in spec.obs if name != number)
    assert out[other].dtype == torch.uint8
    assert torch.equal(out[other], shaped[other])
