"""Finds NaN and infinity on the device, reads them once, and names field, environment and agent.

check_rollout looks at what environments and policy gave, before anything is learnt from it; check_update at
the losses and gradients, before the weights can reach a checkpoint. check_block looks at float actions before
an environment gets them. They raise NonFiniteError. check_action_mask names a live row without a legal choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import EnvError, EnvSpec
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.contracts.vector import Block

__all__ = [
    "NonFiniteError",
    "check_action_mask",
    "check_block",
    "check_loss_scale",
    "check_rollout",
    "check_update",
    "check_weights",
    "checked",
    "fault",
    "illegal_rows",
]

DIVERGED = "its weights have diverged; try a lower trainer.learning_rate"
LOWEST_SCALE = 2.0**-10
"""fp16: the scale starts at 2^16 and is halved at each step whose gradients overflow."""
CAUSES = {
    "observation": "the environment gave it",
    "reward": "the environment gave it",
    "action": f"the policy gave it: {DIVERGED}",
    "log-probability": f"the policy gave it: {DIVERGED}",
    "value": f"the policy gave it: {DIVERGED}",
    "bootstrap": f"the environment gave a final observation that is not finite, or the policy did it: {DIVERGED}",
}


def check_block(block: Block, spec: EnvSpec, t: int, epoch: int) -> None:
    """Check a block's rows in the slab: float observations of row t, then float actions about to be sent.

    Raises:
        NonFiniteError: naming the field and the environment.
    """
    fields = [("observation", _shown(name, spec), leaf) for name, leaf in block.rows.obs.items()]
    for field, shown, array in (*fields, ("action", "action", block.rows.action)):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            _raise(field, shown, torch.from_numpy(array)[None], spec, epoch, t, block.start)


def check_weights(policy: nn.Module, epoch: int) -> None:
    """Raises NonFiniteError if a weight is NaN or infinite."""
    for name, weight in policy.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise NonFiniteError(f"the policy's weight {name} is not finite in epoch {epoch}: {DIVERGED}")


def check_loss_scale(scaler: torch.amp.GradScaler, epoch: int) -> None:
    """Raises NonFiniteError if fp16's loss scale has been halved so often that no step can be meant by it."""
    if scaler.is_enabled() and scaler.get_scale() < LOWEST_SCALE:
        raise NonFiniteError(
            f"gradients are not finite at any loss scale in the update of epoch {epoch} "
            f"(trainer.precision=fp16), so no step is taken any more: try trainer.precision=bf16 or fp32"
        )


def _shown(leaf: str, spec: EnvSpec) -> str:
    return "observation" if len(spec.obs) == 1 else f"observation {leaf!r}"


def checked(buffers: Buffers, spec: EnvSpec) -> dict[str, tuple[str, Tensor]]:
    """Returns what can be non-finite after a rollout, in the order of cause and effect: {shown: (field, array)}."""
    fields = [("observation", _shown(name, spec), leaf) for name, leaf in buffers.obs.items()]
    fields += [
        ("reward", "reward", buffers.reward),
        ("action", "action", buffers.action),
        ("log-probability", "log-probability", buffers.logprob),
        ("value", "value", buffers.value),
    ]
    if buffers.bootstrap is not None:
        fields.append(("bootstrap", "value of a final observation", buffers.bootstrap))
    return {
        shown: (field, array)
        for field, shown, array in fields
        if array.dtype.is_floating_point and array.numel()
    }


def fault(array: Tensor) -> Tensor:
    """[] bool on the array's device: an entry is NaN or infinite."""
    low, high = torch.aminmax(array)  # both pass NaN on
    return ~(low.isfinite() & high.isfinite())


def illegal_rows(buffers: Buffers, spec: EnvSpec) -> Tensor:
    """Returns [T, N] bool: a row with mask=True whose action mask leaves a head without a legal choice."""
    assert buffers.action_mask is not None
    rows = buffers.action_mask[: buffers.horizon].split(spec.action.nvec, -1)
    legal = torch.stack([head.any(-1) for head in rows], -1).all(-1)
    return buffers.mask[: buffers.horizon] & ~legal


def check_action_mask(buffers: Buffers, spec: EnvSpec, epoch: int) -> NoReturn:
    """Raises EnvError naming the first of `illegal_rows`."""
    rows = illegal_rows(buffers, spec).nonzero()
    where, env = "", None
    if len(rows):  # else the rollout launched ahead has written over it
        row, agent = rows[0].tolist()
        env, in_env = divmod(agent, spec.agents_per_env)
        where = f" in environment {env} (agent {in_env} of it), row {row}"
    raise EnvError(
        f"{spec.name} gave an action mask without a legal choice{where} of the rollout of epoch {epoch}; "
        "expected at least one True for each action head in every row with mask=True",
        env,
    )


def check_rollout(faults: Mapping[str, float], buffers: Buffers, spec: EnvSpec, epoch: int) -> None:
    """Judge a whole rollout by what was read from the device.

    Args:
        faults: for each name of `checked`: not 0 where `fault` is true of its array.

    Raises:
        NonFiniteError: naming the first field that is not finite, and where.
    """
    for shown, (field, array) in checked(buffers, spec).items():
        if faults[shown]:
            _raise(field, shown, array, spec, epoch)


def _raise(
    field: str, shown: str, array: Tensor, spec: EnvSpec, epoch: int, t: int = 0, agent: int = 0
) -> NoReturn:
    """Name the first entry of `array` [rows, agents, …] that is not finite; t, agent: where it starts."""
    entries = (~torch.isfinite(array)).nonzero()
    if not len(entries):  # the rollout launched ahead has written over it
        raise NonFiniteError(f"{shown} is not finite in the rollout of epoch {epoch}: {CAUSES[field]}")
    first = entries[0].tolist()
    value = array[tuple(first)].item()
    row, column, *place = first
    env, in_env = divmod(agent + column, spec.agents_per_env)
    where = f", entry {place}" if place else ""
    raise NonFiniteError(
        f"{shown} is {value} in environment {env} (agent {in_env} of it{where}), row {t + row} of the "
        f"rollout of epoch {epoch}: {CAUSES[field]}"
    )


def check_update(
    sums: Sequence[float], names: Sequence[str], buffers: Buffers, spec: EnvSpec, epoch: int
) -> None:
    """Check the sums of an update's losses and gradient norms, as read from the device.

    Raises:
        NonFiniteError: naming the losses, and the environment with the largest return target.
    """
    wrong = [name for name, value in zip(names, sums) if not math.isfinite(value)]
    if not wrong:
        return
    largest = buffers.returns.abs().amax(0)
    agent = int(largest.argmax())
    env, in_env = divmod(agent, spec.agents_per_env)
    raise NonFiniteError(
        f"loss not finite in the update of epoch {epoch} ({', '.join(wrong)}); observations and rewards were "
        f"finite, the largest return target is {largest[agent].item():.3g} in environment {env} (agent "
        f"{in_env} of it): scale rewards down, or try a lower trainer.learning_rate or trainer.max_grad_norm"
    )
