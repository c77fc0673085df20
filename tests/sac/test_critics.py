"""The critics' layers as one operator are the layers one by one, with their gradients."""

from __future__ import annotations

import pytest
import torch

from metta_fast.algorithms.sac.kind import SACKind, TD3Kind
from tests.sac.test_losses import BOX, CHOICE, made, run


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_operator_is_the_layers_one_by_one(layers, dtype) -> None:
    learner, _ = made(SACKind(), BOX, critics=3, critic_layers=layers)
    critics = learner.critics
    obs, weight = torch.randn(20, 5), torch.randn(3, 20, 1)
    found = {}
    for operator in (None, dtype):
        critics.operator = operator
        action = torch.randn(20, 2, generator=torch.Generator().manual_seed(4)).requires_grad_()
        with torch.autocast(
            "cpu", torch.bfloat16, enabled=dtype != torch.float32
        ):  # the plain layers' own rounding
            q = critics(obs, action)
        (q * weight).sum().backward()
        found[operator] = [q.detach(), action.grad, *(p.grad for p in critics.parameters())]
        critics.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype != torch.float32):
            frozen = critics(obs, action.detach().requires_grad_(), frozen=True)
        torch.testing.assert_close(frozen, q)
    most = 1e-5 if dtype == torch.float32 else 0.03
    for ours, plain in zip(found[dtype], found[None]):
        assert ours.dtype == plain.dtype
        assert (ours - plain).norm() <= most * plain.norm()


def test_a_frozen_critic_gets_no_gradient_and_gives_the_actions() -> None:
    critics = made(SACKind(), BOX)[0].critics
    critics.operator = torch.float32
    action = torch.randn(8, 2, requires_grad=True)
    critics(torch.randn(8, 5), action, frozen=True).sum().backward()
    assert action.grad.abs().sum() > 0
    assert all(p.grad is None for p in critics.parameters())


@pytest.mark.parametrize(("kind", "action"), [(SACKind(), BOX), (SACKind(), CHOICE), (TD3Kind(), BOX)])
def test_updates_with_it_are_those_without(kind, action) -> None:
    plain, fused = made(kind, action)[0], made(kind, action)[0]
    fused.critics.operator = fused.target.operator = torch.float32
    run(plain, 8)
    run(fused, 8)
    for ours, theirs in zip(fused.critics.parameters(), plain.critics.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(fused.policy.parameters(), plain.policy.parameters()):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
