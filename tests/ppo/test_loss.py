"""Tests the loss on cases computed by hand, and its masks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from metta_fast.algorithms.ppo.loss import masked_mean, normalized, ppo_loss
from metta_fast.algorithms.ppo.loss_terms import STATS
from metta_fast.algorithms.ppo.minibatch import Minibatch
from tests.ppo.stand_in import make_config

CLIP = torch.tensor(0.2)


def batch(
    mask: list[bool],
    old_logprob: list[float],
    old_value: list[float],
    advantage: list[float],
    returns: list[float],
    weight: Tensor | None = None,
) -> Minibatch:
    def row(x: list) -> Tensor:
        return torch.tensor([x])

    m = torch.tensor([mask])
    return Minibatch(
        {},
        torch.zeros(0),
        ~m,
        m,
        torch.zeros(1, len(mask), 1),
        row(old_logprob),
        row(old_value),
        row(advantage),
        row(returns),
        weight,
    )


def test_by_hand() -> None:
    """Two rows count: ratio 1.5 with A = 2 (clipped to 1.2), ratio 0.5 with A = −1 (clipped to 0.8)."""
    config = make_config(normalize_advantage=False, vf_clip_coef=0.2, vf_coef=0.5, entropy_coef=0.1).trainer
    given = batch([True, True, False], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [2.0, -1.0, 9e9], [2.0, 1.0, 9e9])
    logprob = torch.tensor([[math.log(1.5), math.log(0.5), 80.0]])
    value = torch.tensor([[2.0, 1.1, 9e9]])
    entropy = torch.tensor([[0.5, 0.7, 9e9]])
    result = ppo_loss(logprob, entropy, value, given, config, CLIP)
    policy = -(1.2 * 2.0 + 0.8 * -1.0) / 2
    error = 0.5 * (max(0.0, (1.2 - 2.0) ** 2) + 0.1**2) / 2
    kl = ((0.5 - math.log(1.5)) + (-0.5 - math.log(0.5))) / 2
    assert dict(zip(STATS, result.stats.tolist())) == pytest.approx(
        {"policy": policy, "value": error, "entropy": 0.6, "kl": kl, "clip_fraction": 1.0}, rel=1e-5
    )
    assert float(result.loss) == pytest.approx(policy + 0.5 * error - 0.06, rel=1e-5)
    assert result.ratio[0].tolist() == pytest.approx([1.5, 0.5, 1.0])


def test_no_gradient_comes_from_a_masked_row() -> None:
    given = batch([True, False], [0.0, 0.0], [0.0, 0.0], [1.0, 9e9], [1.0, 9e9])
    inputs = [torch.zeros(1, 2, requires_grad=True) for _ in range(3)]
    ppo_loss(*inputs, given, make_config(normalize_advantage=False).trainer, CLIP).loss.backward()
    for x in inputs:
        assert x.grad is not None
        assert torch.isfinite(x.grad[0, 0])
        assert x.grad[0, 1] == 0


def test_unclipped_value_loss() -> None:
    given = batch([True], [0.0], [0.0], [0.0], [3.0])
    zero = torch.zeros(1, 1)
    config = make_config(vf_clip_coef=None).trainer
    result = ppo_loss(zero, zero, torch.full((1, 1), 1.0), given, config, CLIP)
    assert float(result.stats[STATS.index("value")]) == pytest.approx(0.5 * 4.0)


def test_normalised_over_unmasked_rows_only() -> None:
    mask = torch.tensor([[True, True, True, False]])
    found = normalized(torch.tensor([[1.0, 2.0, 6.0, math.nan]]), mask)
    assert float(found[0, :3].mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(found[0, :3].std(correction=0)) == pytest.approx(1.0, rel=1e-5)
    assert found[0, 3] == 0
    assert not normalized(torch.ones(1, 4), mask).any()


def test_weights_multiply_normalised_advantages() -> None:
    one = torch.ones(1, 2)
    plain = batch([True, True], [0.0, 0.0], [0.0, 0.0], [1.0, -1.0], [0.0, 0.0])
    heavy = plain._replace(weight=torch.tensor([3.0, 1.0]))
    config = make_config().trainer
    policy = [float(ppo_loss(0 * one, one, one, given, config, CLIP).stats[0]) for given in (plain, heavy)]
    assert policy == pytest.approx([0.0, -1.0], abs=1e-6)


def test_a_minibatch_of_masked_rows_gives_nothing() -> None:
    nothing = torch.zeros(1, 2, dtype=torch.bool)
    assert masked_mean(torch.full((1, 2), math.nan), nothing) == 0
