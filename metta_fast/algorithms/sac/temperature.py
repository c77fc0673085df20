"""The temperature α: the weight of the entropy, adapted so that the policy keeps an entropy H̄.

    J(log α) = α · (H − H̄)         H: the entropy of the policy at the batch's observations
    continuous  H = −log π(a|s)     Haarnoja et al. 2018 (arXiv 1812.05905), section 5
    discrete    H = −Σ π log π      Christodoulou 2019 (arXiv 1910.07207), equation 11

Its step goes down the gradient with respect to log α, of which α > 0 is the exponential. sizes.py has H̄.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Temperature(nn.Module):
    """Holds log α [] and H̄."""

    def __init__(self, initial: float, target: float | None) -> None:
        """target: H̄; None: α stays at `initial`."""
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(math.log(initial)), requires_grad=target is not None)
        self.target = target

    @property
    def alpha(self) -> Tensor:
        """α [], without a gradient."""
        return self.log_alpha.detach().exp()

    def loss(self, entropy: Tensor, share: Tensor | float = 1.0) -> Tensor:
        """Returns J(log α) [] for the batch's mean entropy []. share: of H̄ that can be asked for (action masks)."""
        assert self.target is not None
        return self.log_alpha.exp() * (entropy.detach() - self.target * share)
