"""Loads a policy's weights, lists those that do not fit it, and finds those of its outer layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from metta_fast.contracts.algorithm import POLICY_STATE
from metta_fast.contracts.errors import UserError
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.mixed_head import box_of
from metta_fast.policy.plan import Plan, plan_of
from metta_fast.storage.altered import WrongState

OTHER_NETWORK = (
    "They belong to another network, observation or action space: leave out what changes the policy "
    "(policy=…, policy.…), and train in an environment with the same spaces"
)
"""The cure for init_from."""
SHOWN = 6
"""Number of differences that a message lists; it counts the others."""


def differences(policy: nn.Module, weights: Mapping[str, Tensor]) -> list[str]:
    """Returns a line for each parameter that differs between policy and `weights`: its name, both shapes and dtypes."""
    own = policy.state_dict()
    found = []
    for name in [*own, *(name for name in weights if name not in own)]:
        mine, theirs = _said(own.get(name)), _said(weights.get(name))
        if mine != theirs:
            found.append(f"{name}: {theirs} there, {mine} here")
        elif own[name].is_floating_point() and not bool(torch.isfinite(weights[name]).all()):
            found.append(f"{name}: NaN or infinity there")
    return found


def load_weights(policy: nn.Module, weights: Mapping[str, Tensor], source: str, cure: str) -> None:
    """Copies `weights` (a state_dict, normaliser included) into the policy.

    Args:
        source: the file they come from; the message begins with it.
        cure: the message's last line: what the user can do if they do not fit.

    Raises:
        WrongState: `weights` is no mapping.
        UserError: names, shapes or kinds of numbers differ, or a weight is not finite; the policy is unchanged.
    """
    if not isinstance(weights, Mapping):
        raise WrongState(POLICY_STATE, f"is a {type(weights).__name__}, expected weights by their names")
    wrong = differences(policy, weights)
    if wrong:
        rest = f"\n  and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        listed = "".join(f"\n  {line}" for line in wrong[:SHOWN])
        raise UserError(
            f"{source}: its weights do not fit the policy, {len(wrong)} parameters differ:{listed}{rest}\n{cure}"
        )
    policy.load_state_dict(weights)


def outer_layers(policy: nn.Module) -> list[Tensor]:
    """Returns the matrices that are no hidden layers: embedding tables, and those that give the action or the value.

    The latter are those of the policy's plan (plan.py). Of a policy without one, they are the matrices with as many
    rows as such a layer has; a hidden layer of the same width is among them.
    """
    kinds = (nn.Embedding, nn.EmbeddingBag, SparseLayer)
    tables: list[Tensor] = [module.weight for module in policy.modules() if isinstance(module, kinds)]
    plan = plan_of(policy) if hasattr(policy, "plan") else ""
    if isinstance(plan, Plan):
        return [*tables, plan.heads.weight, *([] if plan.value is None else [plan.value.weight])]
    head: Any = policy.head
    box = box_of(head)
    least = head.num_params - (0 if box is None else box.width)  # without standard deviations
    rows = {1, head.num_params, head.num_params + 1, least, least + 1}
    return [*tables, *(p for p in policy.parameters() if p.dim() == 2 and p.shape[0] in rows)]


def _said(value: Any) -> str:
    """Returns a weight's shape, with its dtype unless it is floating point."""
    if value is None:
        return "none"
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{list(value.shape)}" + ("" if value.is_floating_point() else f" {value.dtype}")
