"""Turns a policy's parameters into actions with discrete and continuous parts.

    params [logits of all heads | means | logs of standard deviations] ─► action [heads | entries] float32

The parts are independent given the observation: the log-probability is the sum over them. So is the entropy. A choice
is stored as a float32, which holds whole numbers up to 2²⁴ exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metta_fast.contracts.env import ActionSpec
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.heads import ActionHead

BELOW_ONE = 1 - 2.0**-24
"""The largest float32 below 1."""


class MixedHead:
    """Shapes: W = len(nvec) + len(low); P = num_params = sum(nvec) + 2·len(low).

    Attributes:
        discrete, box: the heads of the two parts.

    Raises:
        UserError: what ActionHead and BoxHead raise.
    """

    def __init__(self, spec: ActionSpec, *, squash: bool = False) -> None:
        self.discrete, self.box = ActionHead(spec), BoxHead(spec, squash=squash)
        self.num_params = self.discrete.num_params + self.box.num_params
        self.squash = squash
        self._heads = len(spec.nvec)

    def sample(self, params: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """params […, P], noise […, W] standard normal → (action […, W], logprob […]), both float32.

        The heads' noise becomes uniform through the normal distribution's cumulative distribution function.
        """
        logits, normal = self._split(params)
        uniform = torch.special.ndtr(noise[..., : self._heads]).clamp(max=BELOW_ONE)
        choice, first = self.discrete.sample(logits, uniform)
        number, second = self.box.sample(normal, noise[..., self._heads :])
        return torch.cat([choice.float(), number], -1), first + second

    def logprob_entropy(self, params: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (logprob […], entropy […]) float32 of an action […, W]: sums over heads and entries."""
        logits, normal = self._split(params)
        first = self.discrete.logprob_entropy(logits, action[..., : self._heads])
        second = self.box.logprob_entropy(normal, action[..., self._heads :])
        return first[0] + second[0], first[1] + second[1]

    def mode(self, params: Tensor) -> Tensor:
        """Returns the most likely choices and the means […, W] float32."""
        logits, normal = self._split(params)
        return torch.cat([self.discrete.mode(logits).float(), self.box.mode(normal)], -1)

    def to_env(self, action: Tensor) -> Tensor:
        """Returns what the environment receives for an action […, W] of `sample` or `mode`: choices as they are, the
        other entries within their bounds."""
        heads = self._heads
        return torch.cat([action[..., :heads], self.box.to_env(action[..., heads:])], -1)

    def masked(self, params: Tensor, action_mask: Tensor) -> Tensor:
        """Returns params […, P] with the choices at -inf that action_mask […, sum(nvec)] forbids."""
        logits, normal = self._split(params)
        return torch.cat([self.discrete.masked(logits, action_mask), normal.float()], -1)

    def no_choice(self, params: Tensor) -> Tensor:
        """Returns […] bool: all logits of a head are -inf."""
        return self.discrete.no_choice(self._split(params)[0])

    def _split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.discrete.num_params
        return params[..., :logits], params[..., logits:]


def make_head(spec: ActionSpec, *, squash: bool = False) -> ActionHead | BoxHead | MixedHead:
    """Makes the head for these actions; squash: continuous ones are squashed with tanh instead of clipped."""
    if spec.kind == "discrete":
        return ActionHead(spec)
    return (MixedHead if spec.kind == "mixed" else BoxHead)(spec, squash=squash)


def discrete_of(head: object) -> ActionHead | None:
    """Returns the part of a policy's head that is discrete, or None."""
    return head.discrete if isinstance(head, MixedHead) else head if isinstance(head, ActionHead) else None


def box_of(head: object) -> BoxHead | None:
    """Returns the part of a policy's head that is continuous, or None."""
    return head.box if isinstance(head, MixedHead) else head if isinstance(head, BoxHead) else None
