"""Compares the contrastive loss with plain loops; it learns to tell episodes apart; resumes are exact."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metta_fast.config.keys import PolicyConfig
from metta_fast.contracts.errors import UserError
from metta_fast.features import make_features
from metta_fast.features.contrastive import draw, info_nce, states
from metta_fast.policy import make_policy
from tests.features.exact import check_resume
from tests.ppo.envs import tickers
from tests.ppo.stand_in import TinyPolicy, make_ppo, run
from tests.ppo.test_rollout import weights


def hooks(**keys: Any) -> Any:
    return make_features({"contrastive": {"coef": 0.5, "distance": 2, "pairs": 64} | keys})


def plain(hidden: Tensor, first: list[int], second: list[int], counts: list[bool], tau: float) -> float:
    """The loss by its formula, in loops."""
    rows = hidden.flatten(0, 1).double()
    unit = [row / row.norm() for row in rows]
    losses = []
    for i, a in enumerate(first):
        if counts[i]:
            terms = [math.exp(float(unit[a] @ unit[b]) / tau) for b, c in zip(second, counts) if c]
            losses.append(-math.log(math.exp(float(unit[a] @ unit[second[i]]) / tau) / sum(terms)))
    return sum(losses) / max(1, len(losses))


def case(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    hidden = torch.randn(12, 3, 5, generator=g)
    mask, reset = torch.rand(12, 3, generator=g) > 0.2, torch.rand(12, 3, generator=g) < 0.15
    return hidden, mask, reset, *draw(torch.rand(2, 40, generator=g), mask, reset, 2.5)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_formula(seed: int) -> None:
    hidden, mask, reset, first, second, counts = case(seed)
    for a, b, c in zip(first.tolist(), second.tolist(), counts.tolist()):
        (t, i), (then, j) = divmod(a, 3), divmod(b, 3)
        assert i == j
        if c:
            assert then > t
            assert mask[t, i]
            assert mask[then, i]
            assert not reset[t + 1 : then + 1, i].any(), "another episode"
    assert 0 < counts.sum() < 40
    found = info_nce(hidden, first, second, counts, 0.3)
    assert float(found) == pytest.approx(
        plain(hidden, first.tolist(), second.tolist(), counts.tolist(), 0.3), rel=1e-4
    )


def test_distances_are_geometric() -> None:
    mask, reset = torch.ones(4000, 1, dtype=torch.bool), torch.zeros(4000, 1, dtype=torch.bool)
    noise = torch.rand(2, 50_000, generator=torch.Generator().manual_seed(0))
    first, second, counts = draw(noise, mask, reset, 6.0)
    later = (second - first)[counts].double()
    assert float(later.mean()) == pytest.approx(6.0, rel=0.03)
    assert float((later == 1).double().mean()) == pytest.approx(1 / 6, rel=0.05)
    assert (draw(noise, mask, reset, 1.0)[1] - first)[counts].eq(1).all()


def test_without_a_pair_it_is_0_and_its_gradient_finite() -> None:
    hidden = torch.zeros(4, 2, 3, requires_grad=True)
    with torch.no_grad():
        hidden[1] = torch.nan
    none = torch.zeros(4, 2, dtype=torch.bool)
    loss = info_nce(hidden, *draw(torch.rand(2, 8), none, none, 2.0), 0.1)
    loss.backward()
    assert float(loss.detach()) == 0
    assert hidden.grad is not None
    assert (hidden.grad == 0).all()


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("box", [False, True])
def test_a_resume_is_exact_for_a_policy_of_ones_own(lstm: bool, box: bool) -> None:
    """TinyPolicy runs its LSTM row by row, so that the module is called once for each."""
    keys: Any = {"deterministic": True, "update_epochs": 2}
    whole = check_resume(lambda: make_ppo(tickers(4, box=box), lstm=lstm, hooks=hooks(), **keys))
    assert not torch.equal(weights(whole), weights(run(make_ppo(tickers(4, box=box), lstm=lstm, **keys), 4)))


@pytest.mark.parametrize("core", ["none", "lstm", "mingru"])
def test_the_states_are_the_cores(core: str) -> None:
    """The module's outputs are those with which the policy's own heads compute the values."""
    factory = tickers(4)
    policy: Any = make_policy(PolicyConfig(hidden_size=16, core=core), factory.spec)
    ppo = make_ppo(factory, policy=policy, hooks=hooks())
    ppo.collect()
    ppo.rollout.vec.close()
    batch = ppo.learner.gather.minibatch(segments := torch.arange(4), ppo.learner.gather.rows(segments))
    feature = ppo.hooks.extra_loss[0]
    with feature.watch(policy):
        output = policy(batch.obs, batch.state, batch.reset)
    hidden = states(feature._seen, batch.mask, "core")
    torch.testing.assert_close(policy.heads(hidden)[..., -1], output.value)
    assert not policy.core._forward_hooks if core != "none" else not policy.encoder._forward_hooks


def test_it_tells_episodes_apart() -> None:
    """Trained with it alone, moments of one episode are near each other."""

    def loss(coef: float) -> float:
        keys: Any = {"vf_coef": 0.0, "learning_rate": 1e-2, "update_epochs": 4, "total_timesteps": 10**6}
        own = hooks(coef=coef, temperature=0.2) if coef else hooks(coef=1e-9)
        ppo = make_ppo(tickers(8), lstm=True, hooks=own, horizon=32, bptt=16, **keys)
        run(ppo, 12)
        batch = ppo.learner.gather.minibatch(s := torch.arange(16), ppo.learner.gather.rows(s))
        feature = ppo.hooks.extra_loss[0]
        with feature.watch(ppo.policy), torch.no_grad():
            ppo.policy(batch.obs, batch.state, batch.reset)
            hidden = states(feature._seen, batch.mask, "core")
            noise = torch.rand(2, 256, generator=torch.Generator().manual_seed(0))
            return float(info_nce(hidden, *draw(noise, batch.mask, batch.reset, 2.0), 0.2))

    assert loss(1.0) < 0.8 * loss(0.0)


class Bare(nn.Module):
    """A policy without a module of the usual names."""

    def __init__(self, inner: TinyPolicy) -> None:
        super().__init__()
        self.net, self.head, self.state_shape = inner, inner.head, inner.state_shape

    def initial_state(self, n: int, device: torch.device) -> Tensor:
        return self.net.initial_state(n, device)

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> Any:
        return self.net(obs, state, reset)


def test_a_module_that_is_missing_or_of_another_form_is_named() -> None:
    def made(**keys: Any) -> Any:
        return make_ppo(tickers(2), policy=Bare(TinyPolicy(tickers(2).spec)), hooks=hooks(**keys))

    with pytest.raises(
        UserError, match=r"module=auto: the policy Bare has no module core or encoder.*net\.encoder"
    ):
        made()
    run(made(module="net.encoder"), 1)
    with pytest.raises(UserError, match=r"trainer\.bptt_horizon=1"):
        make_ppo(tickers(2), bptt=1, hooks=hooks())
    with pytest.raises(UserError, match=r"it gave 1 rows where|has the shape"):
        states([torch.zeros(1, 2, 3)], torch.ones(4, 2, dtype=torch.bool), "x")


def test_the_update_without_a_graph_is_said() -> None:
    ppo = make_ppo(tickers(2), hooks=hooks())
    ppo.rollout.vec.close()
    assert any("feature" in str(choice.why) for choice in ppo.fast_paths if choice.name == "update in C")
