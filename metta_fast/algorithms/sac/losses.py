"""SAC's and TD3's losses as functions of numbers. B transitions, E critics, A choices; ⟨·⟩ is the weighted mean.

    critics      ½ Σ_i ⟨(Q_i(s, a) − y)²⟩           y = R + discount · V(s')
    SAC          V(s') = min_i Q̄_i(s', a') − α log π(a'|s')         a' ~ π(·|s')
                 J_π   = ⟨α log π(ã|s) − min_i Q_i(s, ã)⟩           ã ~ π(·|s), with its gradient
    discrete     V(s') = Σ_a π(a|s') (min_i Q̄_i(s', a) − α log π(a|s'))
                 J_π   = ⟨Σ_a π(a|s) (α log π(a|s) − min_i Q_i(s, a))⟩
    TD3          V(s') = min_i Q̄_i(s', tanh(μ̄(s')) + ε)             J_π = −⟨Q_1(s, tanh(μ(s)))⟩

Sources: Haarnoja et al. 2018 (arXiv 1801.01290 and 1812.05905), Christodoulou 2019 (arXiv 1910.07207), Fujimoto et al.
2018 (arXiv 1802.09477).
"""

from __future__ import annotations

import torch
from torch import Tensor


def mean(values: Tensor, weight: Tensor) -> Tensor:
    """Returns ⟨values⟩ [] of values [B] with weights [B]; those of weight 0 may be anything finite."""
    return (values * weight).sum() / weight.sum().clamp(min=1)


def td_loss(q: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Returns the critics' loss [] of q [E, B] and target [B]."""
    return 0.5 * mean((q - target).square().sum(0), weight)


def soft_value(value: Tensor, logprob: Tensor, alpha: Tensor) -> Tensor:
    """Returns V, as `value` [B] or [B, K], of what critics give for an action of log-probability [B]."""
    entropy = alpha * logprob
    return value - (entropy if value.dim() == 1 else entropy.unsqueeze(-1))


def log_policy(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns (π, log π) [B, A] of logits; a choice at −inf has π = 0, and 0 in the place of its log π."""
    logp = logits - logits.logsumexp(-1, keepdim=True)
    possible = logp > -torch.inf
    return torch.where(possible, logp, -torch.inf).exp(), torch.where(possible, logp, 0.0)


def discrete_value(q: Tensor, logits: Tensor, alpha: Tensor) -> Tensor:
    """Returns V [B] of q [E, B, A] and logits [B, A]; as a loss of the policy it is −J_π."""
    p, logp = log_policy(logits)
    return (p * (q.amin(0) - alpha * logp)).sum(-1)


def discrete_entropy(logits: Tensor) -> Tensor:
    """Returns H [B] of logits [B, A]."""
    p, logp = log_policy(logits)
    return -(p * logp).sum(-1)
