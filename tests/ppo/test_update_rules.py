"""Tests rules of the update that a run learns without: against which values it clips, and what follows each pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from metta_fast.algorithms.hooks import Context
from metta_fast.algorithms.ppo.loss_terms import STATS
from metta_fast.algorithms.ppo.step import SUMS
from metta_fast.buffers.rollout import Buffers
from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf
from metta_fast.policy import make_policy
from metta_fast.policy.normalize import LIMIT
from tests.ppo.envs import tickers
from tests.ppo.one_update import one_update
from tests.ppo.stand_in import make_config, make_ppo, run
from tests.ppo.test_rollout import weights

CPU = torch.device("cpu")
ROWS = 96


@pytest.mark.parametrize("recompute", ["pass", "minibatch"])
def test_values_are_clipped_around_the_rollouts(recompute: str) -> None:
    """Also once the update has written newer values to the buffers."""
    ppo = make_ppo(tickers(4), recompute=recompute, update_epochs=2, learning_rate=0.05, vf_clip_coef=0.1)
    ppo.collect()
    rollout = ppo.buffers.value.clone()
    gather, losses, newer = ppo.learner.gather, [], []
    inner = gather.minibatch

    def watched(segments: Tensor, rows: Tensor, weight: Tensor | None = None) -> Any:
        batch = inner(segments, rows, weight)
        losses.append(torch.equal(batch.value.flatten(), rollout.flatten()[rows]))
        newer.append(not torch.equal(ppo.buffers.value, rollout))
        return batch

    gather.minibatch = watched  # type: ignore[method-assign]
    ppo.update()
    assert losses == [True] * len(losses)
    assert newer[-1]
    ppo.rollout.vec.close()


def test_vtrace_begins_each_rollout_with_ratios_of_1() -> None:
    ppo = make_ppo(tickers(4), advantage="vtrace", update_epochs=2, learning_rate=0.01)
    for _ in range(3):
        ppo.collect()
        assert bool((ppo.buffers.ratio == 1).all())
        ppo.update()
        assert bool((ppo.buffers.ratio != 1).any())
    ppo.rollout.vec.close()


@pytest.mark.parametrize(
    "keys",
    [
        {"recompute": "pass", "update_epochs": 2},
        {"recompute": "minibatch", "minibatches": 8, "horizon": 32, "bptt": 4},
    ],
)
def test_vtrace_is_not_gae_where_it_is_accepted(keys: dict[str, Any]) -> None:
    """sizes.py refuses it where it would be (tests/config/test_sizes.py)."""
    updated = [
        weights(run(make_ppo(tickers(4), advantage=name, learning_rate=0.01, **keys), 1))
        for name in ("gae", "vtrace")
    ]
    assert not torch.equal(*updated)


def test_the_adaptive_rate_follows_the_kl_of_each_pass_alone() -> None:
    """Far too much in the first pass, too little in the second: the rate is where it was."""
    ppo = make_ppo(
        tickers(4), schedule="adaptive", desired_kl=0.01, learning_rate=1e-3, update_epochs=2, minibatches=1
    )
    rates, step = [], ppo.learner.step

    def one_pass(number: int, context: Context) -> bool:
        rates.append(float(step.rate))
        ppo.learner.sums[STATS.index("kl")] += (1.0, 0.004)[number]
        ppo.learner.sums[SUMS.index("minibatches")] += 1
        return True

    ppo.learner._pass = one_pass  # type: ignore[method-assign]
    ppo.collect()
    ppo.update()
    assert [*rates, float(step.rate)] == pytest.approx([1e-3, 1e-3 / 1.5, 1e-3])
    ppo.rollout.vec.close()


def made(width: int, leaf: int = 3) -> tuple[EnvSpec, Any, Buffers]:
    """A robot's policy that normalises, and buffers of random rows whose log-probabilities are the policy's own."""
    action = ActionSpec("box", low=(-1.0,) * width, high=(1.0,) * width)
    spec = EnvSpec("x", 1, {"obs": Leaf((leaf,), "float32")}, action)
    torch.manual_seed(0)
    policy: Any = make_policy(PolicyConfig(hidden_size=16, shared=False, normalize_obs=True), spec)
    b = Buffers.allocate(
        spec, num_agents=ROWS // 4, horizon=4, bptt_horizon=2, state_shape=(0, 0), device=CPU
    )
    for array in (b.obs["obs"], b.action, b.value, b.advantage, b.returns):
        array.normal_()
    b.mask.fill_(True)
    return spec, policy, b


def with_own_logprob(policy: Any, b: Buffers) -> Buffers:
    with torch.no_grad():
        out = policy(
            {"obs": b.obs["obs"][: b.horizon]}, policy.initial_state(b.num_agents, CPU), b.reset[: b.horizon]
        )
        b.logprob.copy_(policy.head.logprob_entropy(out.params, b.action)[0])
    return b


def check_alike(spec: EnvSpec, policy: Any, b: Buffers) -> dict[str, float]:
    """Both updates have the same statistics and gradients; the policy is the rollout's, so the KL is 0."""
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    results = []
    for native in (True, False):
        policy.load_state_dict(before)
        whole = make_config(minibatch_size=ROWS, max_grad_norm=0.0, entropy_coef=0.1)
        sums, moments = one_update(native, policy, with_own_logprob(policy, b), whole, spec)
        results.append((dict(zip(SUMS, sums.tolist())), moments))
    (ours, moments), (theirs, others) = results
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5)
    assert abs(ours["kl"]) < 1e-6
    for one, other in zip(moments, others):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)
    return ours


def test_the_update_in_c_clips_normalised_observations() -> None:
    """Entries 100 standard deviations off, on both sides."""
    spec, policy, b = made(2)
    policy.normalizer.shift.copy_(torch.tensor([1.0, -2.0, 0.0]))
    policy.normalizer.scale.copy_(torch.tensor([2.0, 0.5, 1.0]))
    b.obs["obs"][0, ::2, 0], b.obs["obs"][1, ::3, 1] = 51.0, -202.0
    normalised = policy.normalizer(b.obs)["obs"]
    assert (float(normalised.max()), float(normalised.min())) == (LIMIT, -LIMIT)
    check_alike(spec, policy, b)


@pytest.mark.parametrize("log_std", [(3.0, 0.5), (-12.0, 0.5), (2.0, -10.0), (5.0, -11.0)])
def test_the_update_in_c_clamps_log_std(log_std: tuple[float, float]) -> None:
    """Beyond its bounds a gradient counts if it leads back; the rows' advantages decide whether it does."""
    spec, policy, b = made(2)
    with torch.no_grad():
        policy.log_std.copy_(torch.tensor(log_std))
        policy.heads.weight.zero_()  # a mean of 0: the distance of an action from it is exact
        out = policy({"obs": b.obs["obs"][:4]}, policy.initial_state(b.num_agents, CPU), b.reset[:4])
        noise = torch.randn_like(b.action)
        b.action.copy_(policy.head.sample(out.params, noise)[0])
    before, seen = {name: value.clone() for name, value in policy.state_dict().items()}, []
    for sign in (1.0, -1.0):  # rows with actions far from the mean are better, or worse
        policy.load_state_dict(before)
        b.advantage.copy_(sign * noise.square().sum(-1))
        check_alike(spec, policy, b)
        seen.append([bool(x) for x in policy.log_std.detach() != torch.tensor(log_std)])
    for j, raw in enumerate(log_std):
        inside = -10 <= raw <= 2
        assert [moved[j] for moved in seen] == ([True, True] if inside else [raw < -10, raw > 2])
