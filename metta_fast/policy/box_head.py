"""Turns a policy's parameters into continuous (Box) actions: a normal distribution for each entry.

    params [mean | log std] ─► sample ─► action (stored in the buffers) ─► to_env ─► the environment's action

An entry with two finite bounds is scaled so that they are −1 and 1; any other entry is in the environment's own units.
A bound beyond ±1e6 is no scale, and none here (contracts/env.py: UNBOUNDED).
The distributions have no bounds: `to_env` clips to them, or (squash) squashes with tanh. The buffers store the action
before that, so the learner computes the rollout's log-probability to the bit.

Sources: tanh's log-probability: Haarnoja et al. 2018 (arXiv 1801.01290), appendix C. The entropy after tanh needs
E log(1 − tanh²x) = −2 E log cosh x of a normal x. log cosh x + log 2 is |x| smoothed with a logistic distribution,
since its second derivative is sech²; a mixture of three normal distributions is within 4e-5 of it, and E|x| of a normal
distribution has a closed form.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from metta_fast.contracts.env import UNBOUNDED, ActionSpec
from metta_fast.contracts.errors import UserError

LOG_STD = (-10.0, 2.0)
"""The log of a standard deviation is clamped to these; beyond them only gradients that lead back have an effect."""
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
SMOOTHING = ((0.323442, 0.576409), (0.565957, 0.920681), (0.110601, 1.458196))
"""(weight, standard deviation) of three normal distributions that together are like the logistic one of scale ½."""


class BoxHead:
    """W = len(low) entries; P = num_params = 2·W: means, then logs of standard deviations.

    Raises:
        UserError: no entries, a bound above the other, or squash with an infinite bound (or one beyond ±1e6).
    """

    def __init__(self, spec: ActionSpec, *, squash: bool = False) -> None:
        low, high = np.array(spec.low, np.float64), np.array(spec.high, np.float64)
        if low.size == 0 or low.shape != high.shape or not (low < high).all():
            raise UserError(
                f"action space with low={list(spec.low)}, high={list(spec.high)}: expected low < high"
            )
        bounded = np.array(spec.bounded)
        if squash and not bounded.all():
            raise UserError(
                f"policy.squash=true needs finite bounds (within ±{UNBOUNDED:.0e}), but the actions' are "
                f"low={list(spec.low)}, high={list(spec.high)}; leave it out, or bound the action space"
            )
        self.width, self.squash = low.size, squash
        self.num_params = 2 * low.size
        with np.errstate(invalid="ignore"):
            centre = np.where(bounded, low / 2 + high / 2, 0.0)
            scale = np.where(bounded, high / 2 - low / 2, 1.0)
        self._to_env = torch.tensor(np.stack([centre, scale, low, high]), dtype=torch.float32)
        self._devices: dict[torch.device, Tensor] = {}

    def sample(self, params: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """params […, P], noise […, W] standard normal → (action […, W], logprob […]), both float32."""
        mean, log_std = self.split(params)
        action = mean + noise * log_std.exp()
        return action, self._logprob(mean, log_std, action)

    def reparameterized(self, params: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Returns `sample`'s numbers with gradients of both: the action follows params while the noise stays, so that
        (action − mean) / std is the noise itself (Kingma and Welling 2014, arXiv 1312.6114)."""
        mean, log_std = self.split(params)
        action = mean + noise * log_std.exp()
        return action, self._density(noise, log_std, action)

    def unit(self, action: Tensor) -> Tensor:
        """Returns an action […, W] in the policy's unit, for a critic: with squash within ±1."""
        return action.tanh() if self.squash else action

    def logprob_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (logprob […], entropy […]) float32 of an action […, W]: sums over the entries.

        The entropy is exact, or with squash within 1e-4 for each entry (it has no closed form).
        """
        mean, log_std = self.split(params)
        entropy = (log_std + (0.5 + HALF_LOG_2PI)).sum(-1)
        if self.squash:
            entropy = entropy + mean_log_slope(mean, log_std).sum(-1)
        return self._logprob(mean, log_std, action), entropy

    def mode(self, params: Tensor) -> Tensor:
        """Returns the mean […, W] float32 (with squash, of the normal distribution before tanh)."""
        return self.split(params)[0]

    def spread(self, params: Tensor) -> Tensor:
        """Returns the mean standard deviation [] of params […, P], in the policy's unit (with squash, before tanh)."""
        return self.split(params)[1].exp().mean()

    def to_env(self, action: Tensor) -> Tensor:
        """Returns what the environment receives, within its bounds, for an action […, W] of `sample` or `mode`."""
        if action.device not in self._devices:
            self._devices[action.device] = self._to_env.to(action.device)
        centre, scale, low, high = self._devices[action.device]
        if self.squash:
            action = action.tanh()
        return torch.minimum(torch.maximum(centre + scale * action, low), high)

    def split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = params.float().chunk(2, -1)
        return mean, bounded_log_std(log_std)

    def _logprob(self, mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        return self._density((action - mean) * (-log_std).exp(), log_std, action)

    def _density(self, distance: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        """Returns the logprob […] of an action whose distance […, W] from the mean is in standard deviations."""
        each = -0.5 * distance.square() - log_std - HALF_LOG_2PI
        if self.squash:
            each = each - log_slope(action)
        return each.sum(-1)


class _Bounded(torch.autograd.Function):
    """Clamps to LOG_STD. Outside, a gradient passes if a step against it leads back: a clamp alone would hold a number
    that is once outside there for good."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(*LOG_STD)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        least, most = LOG_STD
        leads_back = ((x <= most) | (grad > 0)) & ((x >= least) | (grad < 0))
        return torch.where(leads_back, grad, 0.0)


def bounded_log_std(log_std: Tensor) -> Tensor:
    """Returns log_std clamped to LOG_STD, with a gradient that leads back from outside."""
    if torch.is_grad_enabled() and log_std.requires_grad:
        bounded: Tensor = _Bounded.apply(log_std)
        return bounded
    return log_std.clamp(*LOG_STD)


def mean_log_slope(mean: Tensor, log_std: Tensor) -> Tensor:
    """Returns E log(1 − tanh²x) of a normal x, element by element: within 1e-4."""
    variance, slope = (2 * log_std).exp(), torch.full_like(mean, 2 * math.log(2.0))
    for weight, deviation in SMOOTHING:
        spread = (variance + deviation**2).sqrt()
        ratio = mean / spread
        size = spread * math.sqrt(2 / math.pi) * (-0.5 * ratio.square()).exp()
        slope = slope - 2 * weight * (size + mean * (ratio * math.sqrt(0.5)).erf())
    return slope


def log_slope(x: Tensor) -> Tensor:
    """Returns log(1 − tanh²x), the log of tanh's slope, without loss of precision far from 0."""
    return 2 * (math.log(2.0) - x - F.softplus(-2 * x))
