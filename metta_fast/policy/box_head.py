"""Turns a policy's parameters into continuous (Box) actions: a normal distribution for each entry.

    params [mean | log std] ─► sample ─► action (stored in the buffers) ─► to_env ─► the environment's action

An entry with two finite bounds is scaled so that they are −1 and 1; any other entry is in the environment's own units.
The distributions have no bounds: `to_env` clips to them, or (squash) squashes with tanh. The buffers store the action
before that, so the learner computes the rollout's log-probability to the bit.

Sources: tanh's log-probability: Haarnoja et al. 2018 (arXiv 1801.01290), appendix C.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from metta_fast.contracts.env import ActionSpec
from metta_fast.contracts.errors import UserError

LOG_STD = (-10.0, 2.0)
"""The log of a standard deviation is clamped to these (beyond them it has no gradient)."""
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(16)
"""Gauss-Hermite quadrature: E f(x), x standard normal, is about Σ w f(node) / √(2π)."""


class BoxHead:
    """W = len(low) entries; P = num_params = 2·W: means, then logs of standard deviations.

    Raises:
        UserError: no entries, a bound above the other, or squash with an infinite bound.
    """

    def __init__(self, spec: ActionSpec, *, squash: bool = False) -> None:
        low, high = np.array(spec.low, np.float64), np.array(spec.high, np.float64)
        if low.size == 0 or low.shape != high.shape or not (low < high).all():
            raise UserError(
                f"action space with low={list(spec.low)}, high={list(spec.high)}: expected low < high"
            )
        bounded = np.isfinite(low) & np.isfinite(high)
        if squash and not bounded.all():
            raise UserError(
                f"policy.squash=true needs finite bounds, but the actions' are low={list(spec.low)}, "
                f"high={list(spec.high)}; leave it out, or bound the action space"
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
        mean, log_std = self._split(params)
        action = mean + noise * log_std.exp()
        return action, self._logprob(mean, log_std, action)

    def logprob_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (logprob […], entropy […]) float32 of an action […, W]: sums over the entries.

        The entropy is exact, or with squash an estimate by quadrature over 16 points (it has no closed form).
        """
        mean, log_std = self._split(params)
        entropy = (log_std + (0.5 + HALF_LOG_2PI)).sum(-1)
        if self.squash:
            for node, weight in zip(NODES.tolist(), (WEIGHTS / math.sqrt(2 * math.pi)).tolist()):
                entropy = entropy + weight * log_slope(mean + node * log_std.exp()).sum(-1)
        return self._logprob(mean, log_std, action), entropy

    def mode(self, params: Tensor) -> Tensor:
        """Returns the mean […, W] float32 (with squash, of the normal distribution before tanh)."""
        return self._split(params)[0]

    def to_env(self, action: Tensor) -> Tensor:
        """Returns what the environment receives, within its bounds, for an action […, W] of `sample` or `mode`."""
        if action.device not in self._devices:
            self._devices[action.device] = self._to_env.to(action.device)
        centre, scale, low, high = self._devices[action.device]
        if self.squash:
            action = action.tanh()
        return torch.minimum(torch.maximum(centre + scale * action, low), high)

    def _split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = params.float().chunk(2, -1)
        return mean, log_std.clamp(*LOG_STD)

    def _logprob(self, mean: Tensor, log_std: Tensor, action: Tensor) -> Tensor:
        distance = (action - mean) * (-log_std).exp()
        each = -0.5 * distance.square() - log_std - HALF_LOG_2PI
        if self.squash:
            each = each - log_slope(action)
        return each.sum(-1)


def log_slope(x: Tensor) -> Tensor:
    """Returns log(1 − tanh²x), the log of tanh's slope, without loss of precision far from 0."""
    return 2 * (math.log(2.0) - x - F.softplus(-2 * x))
