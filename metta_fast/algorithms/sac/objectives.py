"""What is learnt: the value of the next state, and the actor's loss, for each kind of action and algorithm.

    SoftBox          SAC, continuous actions
    SoftDiscrete     SAC, one choice among A
    Deterministic    TD3, continuous actions

Each has `draws`, the standard normal numbers that an update takes: [draws, B, W]. losses.py has the equations.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from metta_fast.algorithms.sac import losses
from metta_fast.algorithms.sac.critic.values import Mean, Values
from metta_fast.algorithms.sac.critics import Critics
from metta_fast.algorithms.sac.reader import Seen, params
from metta_fast.algorithms.sac.targets import target_of
from metta_fast.algorithms.sac.temperature import Temperature
from metta_fast.policy.base import Policy
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.heads import ActionHead


class ActorLoss(NamedTuple):
    """The actor's loss of a batch."""

    loss: Tensor
    """[]."""
    entropy: Tensor
    """[]: the mean entropy of the policy, without a gradient; 0 for a deterministic one."""
    share: Tensor | float = 1.0
    """[]: what the target entropy is multiplied by: with action masks, log(legal choices) / log(choices)."""


class Objective(Protocol):
    """Says what critics and actor are moved towards."""

    draws: int

    @property
    def temperature(self) -> Temperature | None:
        """None: the entropy takes no part."""

    def targets(self) -> list[tuple[nn.Module, nn.Module]]:
        """Returns (target, module) of its own target networks, beside the critics'."""
        ...

    @property
    def values(self) -> Values:
        """What the critics' outputs are."""

    def next_value(self, target: Target, seen: Seen, mask: Tensor | None, noise: Tensor) -> Tensor:
        """Returns V(s') [B], or [B, K] of a distribution. noise: [draws, B, W]. mask: [B, P] bool, or None."""
        ...

    def unit(self, action: Tensor) -> Tensor:
        """Returns actions [B, W] as critics read them."""
        ...

    def q(self, critics: Critics, features: Tensor, action: Tensor) -> Tensor:
        """Returns the critics' outputs [E, B, outputs] for actions [B, W] as the replay buffer has them."""
        ...

    def actor_loss(
        self, critics: Critics, seen: Seen, mask: Tensor | None, noise: Tensor, weight: Tensor
    ) -> ActorLoss: ...


class Target(Protocol):
    """What gives the next state's value: target critics, or (critic/both.py) the critics themselves."""

    def features(self, obs: dict[str, Tensor]) -> Tensor: ...

    def __call__(self, features: Tensor, action: Tensor | None = None) -> Tensor: ...


class _Continuous:
    """What the critics read of continuous actions."""

    head: BoxHead

    def unit(self, action: Tensor) -> Tensor:
        return self.head.unit(action)

    def q(self, critics: Critics, features: Tensor, action: Tensor) -> Tensor:
        found: Tensor = critics(features, self.head.unit(action))
        return found


class SoftBox(_Continuous):
    """SAC for continuous actions."""

    draws = 2

    def __init__(self, policy: Policy, temperature: Temperature, values: Values | None = None) -> None:
        assert isinstance(policy.head, BoxHead)
        self.policy, self.head, self.temperature = policy, policy.head, temperature
        self.values = values or Mean()

    def targets(self) -> list[tuple[nn.Module, nn.Module]]:
        return []

    def next_value(self, target: Target, seen: Seen, mask: Tensor | None, noise: Tensor) -> Tensor:
        action, logprob = self.head.reparameterized(params(self.policy, seen), noise[0])
        value = self.values.target(target(target.features(seen.critic), self.head.unit(action)))
        return losses.soft_value(value, logprob, self.temperature.alpha)

    def actor_loss(
        self, critics: Critics, seen: Seen, mask: Tensor | None, noise: Tensor, weight: Tensor
    ) -> ActorLoss:
        action, logprob = self.head.reparameterized(params(self.policy, seen), noise[1])
        z = critics(critics.features(seen.critic), self.head.unit(action), frozen=True)
        value = losses.soft_value(self.values.least(z), logprob, self.temperature.alpha)
        loss = -losses.mean(value, weight)
        return ActorLoss(loss, -losses.mean(logprob.detach(), weight))


class SoftDiscrete:
    """SAC for one choice: the expectation over choices is computed, not sampled."""

    draws = 0
    values: Values = Mean()

    def __init__(self, policy: Policy, temperature: Temperature) -> None:
        assert isinstance(policy.head, ActionHead)
        self.policy, self.head, self.temperature = policy, policy.head, temperature

    def targets(self) -> list[tuple[nn.Module, nn.Module]]:
        return []

    def _logits(self, seen: Seen, mask: Tensor | None) -> Tensor:
        found = params(self.policy, seen).float()
        return found if mask is None else self.head.masked(found, mask)

    def next_value(self, target: Target, seen: Seen, mask: Tensor | None, noise: Tensor) -> Tensor:
        q = target(target.features(seen.critic))
        return losses.discrete_value(q, self._logits(seen, mask), self.temperature.alpha)

    def unit(self, action: Tensor) -> Tensor:
        return action

    def q(self, critics: Critics, features: Tensor, action: Tensor) -> Tensor:
        choice = action.long().expand(critics.members, -1, -1)
        found: Tensor = critics(features).gather(-1, choice)
        return found

    def actor_loss(
        self, critics: Critics, seen: Seen, mask: Tensor | None, noise: Tensor, weight: Tensor
    ) -> ActorLoss:
        logits = self._logits(seen, mask)
        with torch.no_grad():
            q = critics(critics.features(seen.critic))
        loss = -losses.mean(losses.discrete_value(q, logits, self.temperature.alpha), weight)
        entropy = losses.mean(losses.discrete_entropy(logits.detach()), weight)
        if mask is None:
            return ActorLoss(loss, entropy)
        most = math.log(max(self.head.num_params, 2))
        legal = mask.sum(-1).clamp(min=1).log() / most
        return ActorLoss(loss, entropy, losses.mean(legal, weight))


class Deterministic(_Continuous):
    """TD3: a target actor, noise on its actions, and the first critic for the actor (Fujimoto et al. 2018)."""

    draws = 1
    temperature = None

    def __init__(self, policy: Policy, noise: float, clip: float, values: Values | None = None) -> None:
        assert isinstance(policy.head, BoxHead)
        self.values = values or Mean()
        self.policy, self.head, self.noise, self.clip = policy, policy.head, noise, clip
        self.target = target_of(policy)

    def targets(self) -> list[tuple[nn.Module, nn.Module]]:
        return [(self.target, self.policy)]

    def _action(self, policy: Policy, seen: Seen) -> Tensor:
        return self.head.unit(self.head.mode(params(policy, seen)))

    def next_value(self, target: Target, seen: Seen, mask: Tensor | None, noise: Tensor) -> Tensor:
        moved = (noise[0] * self.noise).clamp(-self.clip, self.clip)
        action = self._action(self.target, seen) + moved
        action = action.clamp(-1, 1) if self.head.squash else action
        return self.values.target(target(target.features(seen.critic), action))

    def actor_loss(
        self, critics: Critics, seen: Seen, mask: Tensor | None, noise: Tensor, weight: Tensor
    ) -> ActorLoss:
        z = critics(critics.features(seen.critic), self._action(self.policy, seen), frozen=True)
        q = self.values.first(z)
        return ActorLoss(-losses.mean(q, weight), torch.zeros_like(q[0]))
