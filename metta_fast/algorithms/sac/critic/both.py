"""Computes the critics' values of both states of a transition in one batch, for batch renormalisation (CrossQ).

both = Both(critics, objective, seen, action, weight)     # (s, a)
value = objective.next_value(both, …)                     # asks it for (s′, a′), as it would ask target networks
both.now                                                  # Q(s, a) of the same pass, with its gradient
"""

from __future__ import annotations

import torch
from torch import Tensor

from metta_fast.algorithms.sac.critic.batch_renorm import BatchRenorm
from metta_fast.algorithms.sac.critics import Critics
from metta_fast.algorithms.sac.objectives import Objective
from metta_fast.algorithms.sac.reader import Seen


class Both:
    """Takes the place of target networks for one batch.

    Args:
        seen: of s. action: [B, W] as the replay buffer has it. weight: [B].
    """

    now: Tensor
    """[E, B, outputs], once the next state's value was asked for."""

    def __init__(
        self, critics: Critics, objective: Objective, seen: Seen, action: Tensor, weight: Tensor
    ) -> None:
        self._critics, self._weight = critics, weight
        with torch.enable_grad():
            self._features = critics.features(seen.critic)
        self._action = objective.unit(action)

    def features(self, obs: dict[str, Tensor]) -> Tensor:
        return self._critics.features(obs)

    def __call__(self, features: Tensor, action: Tensor | None = None) -> Tensor:
        """Returns the critics' outputs [E, B, ·] for (s′, a′), without a gradient."""
        assert action is not None
        norms = [norm for norm in self._critics.norms if isinstance(norm, BatchRenorm)]
        for norm in norms:
            norm.weight = self._weight.repeat(2)
        with torch.enable_grad():
            z = self._critics(torch.cat([self._features, features]), torch.cat([self._action, action]))
            self.now, ahead = z.chunk(2, 1)
        for norm in norms:
            norm.weight = None
        return ahead.detach()
