"""Quantile critics and batch renormalisation beside plain loops and torch's own parts."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from metta_fast.algorithms.sac.critic.batch_renorm import BatchRenorm
from metta_fast.algorithms.sac.critic.values import Mean, Quantiles, quantile_huber
from metta_fast.algorithms.sac.kind import SACKind, TD3Kind
from tests.run.same import same
from tests.sac.test_losses import BOX, made, run


def test_the_quantile_loss_is_that_of_a_plain_loop() -> None:
    theta = torch.randn(2, 3, 4) * 2
    target = torch.randn(3, 5) * 2
    found = quantile_huber(theta, target)
    for e in range(2):
        for b in range(3):
            sum_ = 0.0
            for m in range(4):
                for k in range(5):
                    u = float(target[b, k] - theta[e, b, m])
                    huber = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
                    sum_ += abs((2 * m + 1) / 8 - (u < 0)) * huber
            assert float(found[e, b]) == pytest.approx(sum_ / 20, rel=1e-5)


def test_quantiles_find_the_distribution() -> None:
    """Quantiles that go down the loss of samples reach the samples' own."""
    theta = nn.Parameter(torch.zeros(1, 1, 4))
    target = torch.rand(1, 4000, generator=torch.Generator().manual_seed(0)) * 80
    optimizer = torch.optim.SGD([theta], lr=40.0)
    for _ in range(400):
        optimizer.zero_grad()
        quantile_huber(theta, target).sum().backward()
        optimizer.step()
    # the Huber loss draws the outer ones a little inwards
    assert theta.detach()[0, 0] == pytest.approx([10.0, 30.0, 50.0, 70.0], abs=1.5)


def test_targets_drop_the_largest_of_all_critics() -> None:
    z = torch.tensor([[[1.0, 9.0, 2.0]], [[8.0, 3.0, 0.0]]])  # 2 critics, 1 row, 3 quantiles
    assert Quantiles(3, 1).target(z).tolist() == [[0.0, 1.0, 2.0, 3.0]]
    assert Quantiles(3, 1).least(z) == pytest.approx(23 / 6)
    assert Mean().target(z[..., :1]).tolist() == [1.0]


def test_one_quantile_without_drops_is_near_the_median() -> None:
    learner, _ = made(SACKind(), BOX, critic="quantile", quantiles=1, dropped_quantiles=0)
    run(learner, 3)
    assert learner.critics.last.weight.shape[-1] == 1
    assert torch.isfinite(learner.sums).all()


def test_renormalisation_with_settled_figures_is_torchs_batch_norm() -> None:
    own, plain = BatchRenorm(1, 6), nn.BatchNorm1d(6, eps=1e-5)
    x, weight = torch.randn(64, 6) * 3 + 1, torch.ones(64)
    own.running_mean.copy_(x.mean(0))
    own.running_var.copy_(x.var(0, unbiased=False))
    own.batches.fill_(1000)
    own.weight = weight
    ours = x.clone().unsqueeze(0).requires_grad_()
    theirs = x.clone().requires_grad_()
    factor = torch.randn(64, 6)
    found, expected = own(ours)[0], plain(theirs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    (found * factor).sum().backward()
    (expected * factor).sum().backward()
    torch.testing.assert_close(ours.grad[0], theirs.grad, rtol=1e-3, atol=1e-4)


def test_renormalisation_corrects_towards_the_running_figures_within_limits() -> None:
    own = BatchRenorm(1, 1)
    own.batches.fill_(1000)
    own.weight = torch.ones(4)
    x = torch.tensor([[[1.0], [2.0], [3.0], [6.0]]])  # mean 3, variance 3.5; running 0 and 1
    with torch.no_grad():
        found = own(x)
    deviation = (3.5 + 1e-5) ** 0.5
    expected = (x - 3) / deviation * min(deviation, 3.0) + 3.0
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)  # nearly x itself
    assert own.running_mean.item() == pytest.approx(0.03)
    assert own.running_var.item() == pytest.approx(1 + 0.01 * 2.5)
    own.weight = None
    torch.testing.assert_close(own(x).detach(), (x - 0.03) / (1.025 + 1e-5) ** 0.5)


def test_rows_without_weight_take_no_part() -> None:
    few, all_ = BatchRenorm(2, 3), BatchRenorm(2, 3)
    x = torch.randn(2, 10, 3)
    few.weight, all_.weight = torch.ones(6), torch.cat([torch.ones(6), torch.zeros(4)])
    torch.testing.assert_close(all_(x)[:, :6], few(x[:, :6]))
    torch.testing.assert_close(all_.running_mean, few.running_mean)
    before = copy.deepcopy(all_.state_dict())
    all_.weight = torch.zeros(10)
    assert torch.isfinite(all_(x)).all()
    assert torch.equal(all_.running_mean, before["running_mean"])


@pytest.mark.parametrize("kind", [SACKind(), TD3Kind()])
@pytest.mark.parametrize(
    "own", [{"critic": "quantile"}, {"batch_norm": True}, {"critic": "quantile", "batch_norm": True}]
)
def test_updates_resume_to_the_bit(kind, own) -> None:
    learner, _ = made(kind, BOX, **own)
    run(learner, 4)
    state = copy.deepcopy(learner.state_dict())
    assert ("target" in state) == ("batch_norm" not in own)
    run(learner, 4, epoch=1)
    other, _ = made(kind, BOX, **own)
    other.load_state_dict(state)
    run(other, 4, epoch=1)
    same(learner.state_dict(), other.state_dict())
    assert all(torch.isfinite(p).all() for p in learner.critics.parameters())


def test_the_actor_sees_the_running_figures() -> None:
    learner, _ = made(SACKind(), BOX, batch_norm=True)
    run(learner, 5)
    norms = list(learner.critics.norms)
    assert all(norm.weight is None for norm in norms)
    assert all(norm.batches.item() == 5 for norm in norms)  # once an update: not by the actor's loss
    assert not any(torch.equal(norm.running_mean, torch.zeros_like(norm.running_mean)) for norm in norms)


@pytest.mark.parametrize("own", [{"critic": "quantile"}, {"batch_norm": True}])
def test_critics_find_a_reward(own) -> None:
    learner, _ = made(SACKind(), BOX, **own)
    replay = learner.replay
    replay.terminal.fill_(True)
    replay.reward.copy_(replay.action.sum(-1).tanh() + replay.obs["obs"][..., 0])
    run(learner, 4)
    first = float(learner.sums[0])
    for epoch in range(20):
        run(learner, 4, epoch=epoch)
    assert float(learner.sums[0]) < 0.2 * first
