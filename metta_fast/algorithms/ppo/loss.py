"""Computes PPO's loss as a plain function of a minibatch and the current policy's output.

With r = π(a)/π_old(a), A the normalised advantage, all means over unmasked rows:

    policy   −mean min(r·A, clip(r, 1−ε, 1+ε)·A)        ε: a tensor, so that a captured step follows its schedule
    value    ½ mean max((V−R)², (V_old + clip(V−V_old, ±ε_v) − R)²)
    loss     policy + vf_coef · value − entropy_coef · entropy

trainer.random_shift adds coef · shift_loss: with s' the observation s of which the images are moved,

    shift    mean r·(r' − 1)·log π(a|s') + ½ mean (V(s') − V(s))²      r' = π(a|s')/π(a|s); r, r', V(s): constants

The first term has on average the gradient of KL(π(·|s) ‖ π(·|s')), by the rollout's actions: −r·log π(a|s') alone has
that of the cross-entropy; r·r' adds nothing to it (Σ π' ∇log π' = 0) but takes its noise away where r' is nearly 1.

Sources: Schulman et al. 2017 (PPO, arXiv:1707.06347); KL estimate k3 = (r−1) − ln r: Schulman 2020,
"Approximating KL Divergence" (never negative, unbiased); the shift's terms: Raileanu et al. 2021 (DrAC,
arXiv:2006.12862).
"""

from __future__ import annotations

import torch
from torch import Tensor

from metta_fast.algorithms.ppo.loss_terms import EPSILON, LEAST_DEVIATION, Loss
from metta_fast.algorithms.ppo.minibatch import Minibatch
from metta_fast.config.keys import TrainerConfig

MOST_APART = 2.3
"""Most by which log π(a|s') counts as above log π(a|s): r' is at most 10, so that no row outweighs all others."""


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean of x over the rows where mask is True, or 0 if there are none. Other rows are not read.

    Their gradient is 0, but autograd multiplies it on with the slopes of whatever made x: mask what is not finite
    before it is squared, divided and the like.
    """
    return _mean(torch.where(mask, x, 0.0), mask)


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    """Returns the masked mean of x that is 0 already where mask is False."""
    return x.sum() / mask.sum().clamp(min=1)


def normalized(advantage: Tensor, mask: Tensor) -> Tensor:
    """Normalizes to mean 0 and standard deviation 1 over the unmasked rows; masked rows become 0.

    Advantages that are equal, or equal but for rounding, become about 0 (LEAST_DEVIATION).
    """
    mean = masked_mean(advantage, mask)
    centred = advantage - mean
    centred = torch.where(mask, centred - masked_mean(centred, mask), 0.0)  # without the mean's own rounding
    deviation = masked_mean(centred.square(), mask).sqrt()
    return centred / (torch.maximum(deviation, LEAST_DEVIATION * mean.abs()) + EPSILON)


def ppo_loss(
    logprob: Tensor,
    entropy: Tensor,
    value: Tensor,
    batch: Minibatch,
    config: TrainerConfig,
    clip: Tensor,
) -> Loss:
    """Returns the loss of a minibatch.

    Args:
        logprob, entropy, value: [L, B] float32 under the current policy.
        clip: [] float32, ε.
    """
    mask = batch.mask
    advantage = (
        normalized(batch.advantage, mask)
        if config.normalize_advantage
        else torch.where(mask, batch.advantage, 0.0)
    )
    if batch.weight is not None:
        advantage = advantage * batch.weight
    log_ratio = torch.where(mask, logprob - batch.logprob, 0.0)
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    policy_loss = -masked_mean(torch.minimum(ratio * advantage, clipped * advantage), mask)

    error = torch.where(mask, value - batch.returns, 0.0).square()
    if config.vf_clip_coef is not None:
        limit = config.vf_clip_coef
        near = batch.value + (value - batch.value).clamp(-limit, limit)
        error = torch.maximum(error, torch.where(mask, near - batch.returns, 0.0).square())
    value_loss = 0.5 * _mean(error, mask)
    entropy_mean = masked_mean(entropy, mask)
    loss = policy_loss + config.vf_coef * value_loss - config.entropy_coef * entropy_mean

    kl = masked_mean(ratio - 1 - log_ratio, mask)
    clip_fraction = masked_mean(((ratio - 1).abs() > clip).float(), mask)
    stats = torch.stack([policy_loss, value_loss, entropy_mean, kl, clip_fraction]).detach()
    return Loss(loss, stats, ratio.detach())


def shift_loss(
    moved: Tensor, moved_value: Tensor, logprob: Tensor, value: Tensor, ratio: Tensor, mask: Tensor
) -> Tensor:
    """Returns the loss of moved images, [].

    Args:
        moved, moved_value: [L, B] float32: log-probabilities and values of moved images under the current policy.
        logprob, value: [L, B] float32: those of the images as they are.
        ratio: [L, B] π/π_old of the images as they are, detached.
        mask: [L, B] bool: False rows are not read.
    """
    apart = torch.where(mask, moved - logprob, 0.0).detach()
    weight = ratio * apart.clamp(max=MOST_APART).expm1()
    error = torch.where(mask, moved_value - value.detach(), 0.0).square()
    return _mean(torch.where(mask, moved, 0.0) * weight, mask) + 0.5 * _mean(error, mask)
