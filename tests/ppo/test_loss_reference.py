"""Tests the loss, its statistics and its gradients on random minibatches against plain loops in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from metta_fast.algorithms.ppo.loss import ppo_loss
from metta_fast.algorithms.ppo.loss_terms import STATS
from metta_fast.algorithms.ppo.minibatch import Minibatch
from tests.ppo.stand_in import make_config

ROWS, SEGMENTS = 6, 5
CLIP = 0.2


def numbers(seed: int) -> tuple[Minibatch, list[torch.Tensor]]:
    """A minibatch with masked rows that hold large numbers, and (logprob, entropy, value) of another policy."""
    g = torch.Generator().manual_seed(seed)

    def normal(scale: float = 1.0) -> torch.Tensor:
        return torch.randn((ROWS, SEGMENTS), generator=g) * scale

    mask = torch.rand((ROWS, SEGMENTS), generator=g) > 0.25
    mask[0, 0] = True
    large = torch.where(mask, 0.0, 1e6)
    old, value = normal() - 2, normal(2.0)
    batch = Minibatch(
        {}, torch.zeros(0), ~mask, mask, torch.zeros(ROWS, SEGMENTS, 1), old + large, value,
        normal(3.0) + 0.5 + large, normal(2.0) + large, torch.rand(SEGMENTS, generator=g) + 0.5,
    )  # fmt: skip
    new = [old + normal(0.4), normal().abs(), value + normal(0.5)]
    return batch, [x.requires_grad_() for x in new]


def by_hand(batch: Minibatch, new: list[torch.Tensor], trainer: Any) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss and its statistics, row by row."""
    rows = [(t, n) for t in range(ROWS) for n in range(SEGMENTS) if batch.mask[t, n]]
    logprob, entropy, value = new
    a = [float(batch.advantage[row]) for row in rows]
    if trainer.normalize_advantage:
        mean = sum(a) / len(a)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in a) / len(a))
        a = [(x - mean) / deviation for x in a]
    sums = dict.fromkeys(STATS, torch.zeros((), dtype=torch.float64))
    for row, advantage in zip(rows, a):
        assert batch.weight is not None
        advantage *= float(batch.weight[row[1]])
        log_ratio = logprob[row] - float(batch.logprob[row])
        ratio = log_ratio.exp()
        bounded = ratio.clamp(1 - CLIP, 1 + CLIP)
        old, returns = float(batch.value[row]), float(batch.returns[row])
        error = (value[row] - returns) ** 2
        if trainer.vf_clip_coef is not None:
            near = old + (value[row] - old).clamp(-trainer.vf_clip_coef, trainer.vf_clip_coef)
            error = torch.maximum(error, (near - returns) ** 2)
        terms = {
            "policy": -torch.minimum(ratio * advantage, bounded * advantage),
            "value": error / 2,
            "entropy": entropy[row],
            "kl": (ratio - 1 - log_ratio).detach(),
            "clip_fraction": ((ratio - 1).abs() > CLIP).double(),
        }
        sums = {name: sums[name] + terms[name] / len(rows) for name in STATS}
    loss = sums["policy"] + trainer.vf_coef * sums["value"] - trainer.entropy_coef * sums["entropy"]
    return loss, {name: float(figure.detach()) for name, figure in sums.items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"normalize_advantage": False},
        {"vf_clip_coef": None},
        {"vf_clip_coef": 0.3, "vf_coef": 2.0, "entropy_coef": 0.1},
    ],
    ids=["default", "as-they-are", "no-value-clip", "other-weights"],
)
def test_loss_statistics_and_gradients_are_those_of_plain_loops(settings: dict[str, Any], seed: int) -> None:
    trainer = make_config(**settings).trainer
    batch, new = numbers(seed)
    exact = [x.detach().double().requires_grad_() for x in new]
    expected, stats = by_hand(batch, exact, trainer)
    expected.backward()
    found = ppo_loss(*new, batch, trainer, torch.tensor(CLIP))
    found.loss.backward()
    assert found.loss.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-5)
    assert dict(zip(STATS, found.stats.tolist())) == pytest.approx(stats, rel=1e-4, abs=1e-5)
    assert stats["kl"] > 0
    assert 0 < stats["clip_fraction"] < 1
    for ours, theirs in zip(new, exact):
        assert ours.grad is not None
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-6)
    assert (found.ratio[~batch.mask] == 1).all()
