"""Wraps one step of a policy as the module to export, whose inputs and outputs are plain tensors.

    (leaves [B, *shape] …, action_mask [B, P] bool, state [layers, B, size], reset [B] bool)
        ─► (action [B, width], params [B, P], value [B], new_state [layers, B, size])

The leaves are the actor's. If the value reads other leaves, it is not an output. A policy without a core has no state
and no reset. action_mask is an input only where the environment gives masks; params then has -inf where the mask
forbids. The action is the most likely one, in the environment's own numbering.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.contracts.env import EnvSpec
from metta_fast.policy import Policy
from metta_fast.policy.cores import LSTMCore, MinGRUCore
from metta_fast.policy.grid.sparse_layer import SparseLayer

ACTION_MASK = "action_mask"
"""The mask's input, and its key beside the observation's leaves in the batches of check.py."""
PLAIN: dict[type[nn.Module], str] = {SparseLayer: "decoded", LSTMCore: "plain", MinGRUCore: "plain"}
"""Modules with operators of our own, and their method that computes the same with torch's operators."""


class Step(nn.Module):
    """Computes one step of a policy (see the module's docstring)."""

    def __init__(self, policy: Policy, spec: EnvSpec) -> None:
        super().__init__()
        self.policy = policy
        self.leaves = list(policy.actor_leaves)
        self.memory, self.value = has_memory(policy), gives_value(policy)
        self.masks = spec.action_mask
        self.heads = len(spec.action.nvec)
        """Entries of the action that are choices; the others are numbers."""
        start = [*spec.action.start, *[0] * len(spec.action.low)]
        self.start = start if any(start) else None

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        obs = {name: leaf.unsqueeze(0) for name, leaf in zip(self.leaves, inputs)}
        if self.memory:
            state, reset = inputs[-2:]
        else:
            agents = inputs[0].shape[0]
            state = torch.zeros((0, agents, 0), device=inputs[0].device)
            reset = torch.zeros(agents, dtype=torch.bool, device=inputs[0].device)
        params, value, after = self.policy(obs, state, reset.unsqueeze(0))
        head: Any = self.policy.head
        if self.masks:
            params = head.masked(params, inputs[len(self.leaves)].unsqueeze(0))
        action = head.to_env(head.mode(params))[0]
        if self.start is not None:
            action = action + torch.tensor(self.start, dtype=action.dtype, device=action.device)
        given = [action, params[0].float()]
        if self.value:
            given.append(value[0].float())
        return (*given, after) if self.memory else tuple(given)


def has_memory(policy: Policy) -> bool:
    return policy.state_shape[0] * policy.state_shape[1] > 0


def gives_value(policy: Policy) -> bool:
    """Returns whether the actor's leaves suffice to compute the value."""
    return set(policy.critic_leaves) <= set(policy.actor_leaves)


def plain_copy(policy: Policy) -> Policy:
    """Returns a copy that uses torch's own operators, which exporters support."""
    copied = copy.deepcopy(policy)
    for module in copied.modules():
        method = PLAIN.get(type(module))
        if method is not None:
            module.forward = getattr(module, method)
    return copied


def input_names(spec: EnvSpec, *, memory: bool) -> list[str]:
    """Returns the inputs' names in the order of `Step.forward`: "obs" or "obs/<leaf>" …, action_mask, state,
    reset."""
    leaves = [name if name == "obs" else f"obs/{name}" for name in spec.obs]
    leaves += [ACTION_MASK] * spec.action_mask
    return [*leaves, "state", "reset"] if memory else leaves


def output_names(policy: Policy) -> list[str]:
    names = ["action", "params"]
    return names + ["value"] * gives_value(policy) + ["new_state"] * has_memory(policy)


def example_inputs(policy: Policy, obs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Returns inputs of a `Step` for observations {leaf: [B, …]} at an episode's start."""
    agents = len(next(iter(obs.values())))
    if not has_memory(policy):
        return tuple(obs.values())
    return (*obs.values(), policy.initial_state(agents), torch.ones(agents, dtype=torch.bool))
