"""Turns a policy's distribution parameters into actions, log-probabilities and entropies.

Here discrete actions (box_head.py: continuous ones; mixed_head.py: both), one head or several of unequal size
(MultiDiscrete). `params` are the heads' logits side by side; an action row is int32 `[heads]`, each from 0. All
mathematics is float32 whatever the autocast. A logit of -inf forbids its choice.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from metta_fast.contracts.env import ActionSpec
from metta_fast.contracts.errors import UserError

LEAST = torch.finfo(torch.float32).min
"""Lower bound of a head's log-sum-exp, so that a head without a choice gives -inf and not NaN."""


def running_sum(p: Tensor) -> Tensor:
    """Returns running sums of p […, n] ≥ 0 over the last axis; they never decrease.

    torch has no deterministic float cumsum on CUDA: for few choices there, sums under a triangular mask.
    """
    n = p.shape[-1]
    if p.device.type == "cpu" or n > 64:
        return p.cumsum(-1)
    return masked_sums(p)


def masked_sums(p: Tensor) -> Tensor:
    """Returns `running_sum` from n² products, added in the same order for each sum."""
    n = p.shape[-1]
    return (p.unsqueeze(-2) * p.new_ones(n, n).tril()).sum(-1)


class ActionHead:
    """Discrete actions: heads with `nvec` choices.

    Shapes: `…` are any leading axes, W = len(nvec), P = num_params = sum(nvec).

    Raises:
        UserError: a head without a choice.
    """

    def __init__(self, spec: ActionSpec) -> None:
        if not spec.nvec or min(spec.nvec) < 1:
            raise UserError(
                f"action space with nvec={list(spec.nvec)}: expected heads of at least one choice each"
            )
        self.nvec = spec.nvec
        self.num_params = sum(spec.nvec)
        self._most = max(spec.nvec)
        self._equal = min(spec.nvec) == self._most

    def sample(self, params: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Samples actions by inverse CDF: the same params and noise give the same action.

        Args:
            params: […, P]. noise: […, W] float32, uniform in [0, 1), one number for each head.

        Returns:
            (action […, W] int32, logprob […] float32). Where all logits of a head are -inf the log-probability is
            -inf and the head's action is 0; for NaN in params the log-probability is NaN. The caller knows whether
            the row matters.
        """
        logits = self._logits(params)
        logp = logits - logits.logsumexp(-1, keepdim=True).clamp(min=LEAST)
        cdf = running_sum(logp.exp())
        total = cdf[..., -1:]
        # Never past the last choice of positive probability, however close to 1 the noise.
        action = ((cdf <= noise.unsqueeze(-1) * total) & (cdf < total)).sum(-1, keepdim=True)
        return action.squeeze(-1).to(torch.int32), logp.gather(-1, action).sum((-1, -2))

    def masked(self, params: Tensor, action_mask: Tensor) -> Tensor:
        """Returns params […, P] float32 with the choices that action_mask […, P] forbids at -inf.

        A head without a legal choice keeps its logits: no row becomes NaN; rollout/summary.py finds live rows of
        that kind.
        """
        legal = [part | ~part.any(-1, keepdim=True) for part in action_mask.split(self.nvec, -1)]
        return params.float().masked_fill(~torch.cat(legal, -1), -torch.inf)

    def no_choice(self, params: Tensor) -> Tensor:
        """Returns […] bool: all logits of a head are -inf."""
        return (self._logits(params) == -torch.inf).all(-1).any(-1)

    def logprob_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (logprob […], entropy […]) float32 of an action […, W]: sums over the heads."""
        logp = self._logp(params)
        chosen = logp.gather(-1, action.long().unsqueeze(-1))
        finite = logp.masked_fill(logp == -torch.inf, 0.0)  # p log p = 0 at p = 0
        return chosen.sum((-1, -2)), -(logp.exp() * finite).sum((-1, -2))

    def mode(self, params: Tensor) -> Tensor:
        """Returns the most likely action […, W] int32."""
        return self._logits(params).argmax(-1).to(torch.int32)

    def to_env(self, action: Tensor) -> Tensor:
        """Returns the action that the environment receives: the same."""
        return action

    def _logits(self, params: Tensor) -> Tensor:
        """[…, W, most choices] float32; -inf where a head has fewer choices."""
        params = params.float()
        if self._equal:
            return params.unflatten(-1, (len(self.nvec), self._most))
        heads = [
            F.pad(part, (0, self._most - part.shape[-1]), value=-torch.inf)
            for part in params.split(self.nvec, -1)
        ]
        return torch.stack(heads, -2)

    def _logp(self, params: Tensor) -> Tensor:
        logits = self._logits(params)
        # torch's log_softmax is four times slower on the CPU where the last axis is this short.
        return logits - logits.logsumexp(-1, keepdim=True)
