"""Says what a policy is made of, until policy/plan.py does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from metta_fast.policy.encoders import MLPEncoder, TokenEncoder
from metta_fast.policy.grid.sparse_layer import SparseLayer
from metta_fast.policy.network import Network


@dataclass(frozen=True)
class Trunk:
    leaves: tuple[str, ...]
    sparse: dict[str, SparseLayer]
    flat: tuple[str, ...]
    first: nn.Linear | None
    second: nn.Linear
    activation: str
    core: nn.Module | None


@dataclass(frozen=True)
class Plan:
    actor: Trunk
    critic: Trunk | None
    heads: nn.Linear
    value: nn.Linear | None
    head: Any
    log_std: nn.Parameter | None
    normalizer: Any


def _trunk(encoder: Any, core: Any) -> Trunk | str:
    if isinstance(encoder, MLPEncoder):
        sparse: Any = dict(encoder.parts.items())
        flat = tuple(encoder.flat)
        return Trunk((*sparse, *flat), sparse, flat, encoder.first, encoder.second, encoder.activation, core)
    if isinstance(encoder, TokenEncoder):
        return Trunk(
            (encoder.leaf,),
            {encoder.leaf: encoder.tokens},
            (),
            None,
            encoder.second,
            encoder.activation,
            core,
        )
    return f"the encoder {type(encoder).__name__}"


def plan_of(policy: Any) -> Plan | str:
    if type(policy) is not Network:
        return f"a policy of class {type(policy).__name__}"
    critic: Any = policy.critic
    actor = _trunk(policy.encoder, policy.core)
    parts: dict[str, Any] = {} if critic is None else dict(critic.items())
    second = _trunk(parts["encoder"], parts.get("core")) if parts else None
    if isinstance(actor, str) or isinstance(second, str):
        return actor if isinstance(actor, str) else str(second)
    value = None if critic is None else critic["value"]
    return Plan(actor, second, policy.heads, value, policy.head, policy.log_std, policy.normalizer)
