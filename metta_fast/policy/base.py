"""Declares the interface of a policy, for ours and for a user's own.

class MyNet(Policy):
    def __init__(self, config, spec):                 # PolicyConfig, EnvSpec
        super().__init__(spec)
        self.net = nn.Linear(spec.obs["obs"].shape[0], self.head.num_params + 1)

    def forward(self, obs, state, reset):
        out = self.net(obs["obs"].float())
        return PolicyOutput(out[..., :-1], out[..., -1], state)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from metta_fast.contracts.env import EnvSpec
from metta_fast.policy.box_head import BoxHead
from metta_fast.policy.heads import ActionHead
from metta_fast.policy.mixed_head import MixedHead, make_head
from metta_fast.policy.normalize import Normalizer
from metta_fast.policy.plan import Plan


class PolicyOutput(NamedTuple):
    """The output of a forward pass over T rows of B agents."""

    params: Tensor
    """[T, B, head.num_params] parameters of the action distribution, for the head."""
    value: Tensor
    """[T, B] float32."""
    state: Tensor
    """[layers, B, size] float32: the core's state after the last row."""


class Policy(nn.Module):
    """A network with an action head. See the module's docstring for the smallest one.

    Attributes:
        head: turns params into actions and log-probabilities: ActionHead, BoxHead for continuous actions, or
            MixedHead.
        state_shape: (layers, size) of the core's state; (0, 0) without a core.
        normalizer: normalises its observations (normalize.py); None: they are read as they are.
        actor_leaves: leaves of the observation that actions depend on; `load_policy` and exported files need these.
        critic_leaves: leaves that the value depends on. If one that the actor does not read is missing, the value is
            NaN.
    """

    def __init__(self, spec: EnvSpec, state_shape: tuple[int, int] = (0, 0), *, squash: bool = False) -> None:
        """Makes the action head. squash: continuous actions are squashed with tanh instead of clipped."""
        super().__init__()
        self.head: ActionHead | BoxHead | MixedHead = make_head(spec.action, squash=squash)
        self.state_shape = state_shape
        self.normalizer: Normalizer | None = None
        self.actor_leaves: tuple[str, ...] = tuple(spec.obs)
        self.critic_leaves: tuple[str, ...] = tuple(spec.obs)

    def initial_state(self, n: int, device: torch.device | str | None = None) -> Tensor:
        """Returns zeros [layers, n, size] float32: the state of n agents before their first row."""
        layers, size = self.state_shape
        return torch.zeros(layers, n, size, device=device)

    def forward(self, obs: dict[str, Tensor], state: Tensor, reset: Tensor) -> PolicyOutput:
        """Runs T rows of B agents.

        Args:
            obs: {leaf: [T, B, *shape]} in the environment's dtype; `actor_leaves` at least.
            state: [layers, B, size], before row 0.
            reset: [T, B] bool: the state is zeroed before this row.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward(obs, state, reset)")

    def plan(self) -> Plan | str | None:
        """Returns what `forward` computes, layer by layer, so that fast paths can compute it (plan.py).

        None, or a sentence that says why, if it is not made of such layers: then `forward` is what runs.
        """
        return f"a policy of class {type(self).__name__}, which has no plan()"

    def reads_reset(self) -> bool:
        """Returns whether `forward` depends on `reset`; False lets a rollout copy it after the policy has started."""
        return True
