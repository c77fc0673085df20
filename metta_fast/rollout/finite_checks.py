"""Finds NaN and infinity on the device, reads them once, and names field, environment and agent.

check_rollout looks at what environments and policy gave, before anything is learnt from it; check_update at
the losses and gradients, before the weights can reach a checkpoint. check_block looks at float actions before
an environment gets them; check_choice at a block whose policy leaves no choice. They raise NonFiniteError.
check_action_mask names a live row without a legal choice.

Only what is learnt from counts. A masked row's reward, action and log-probability never end a run, and its value and
observation only where a truncation bootstraps from them: elsewhere the rollout has put 0 in place of observations that
are not finite (transfer.py, device_rollout.py), so whatever is left in `buffers.obs` is a fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import Array, EnvError, EnvSpec
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.contracts.player import without_choice
from metta_fast.contracts.vector import Block

__all__ = [
    "NonFiniteError",
    "check_action_mask",
    "check_block",
    "check_choice",
    "check_loss_scale",
    "check_rollout",
    "check_update",
    "check_weights",
    "checked",
    "fault",
    "illegal_rows",
    "read_values",
    "usable",
]

NO_CHOICE = "the policy leaves no choice: all logits of an action head are -inf; allow at least one action"
DIVERGED = "its weights have diverged; try a lower trainer.learning_rate"
LOWEST_SCALE = 2.0**-10
"""fp16: the scale starts at 2^16 and is halved at each step whose gradients overflow."""
TOO_LARGE = (
    "the environment gave it, and it is too large for float32 (3.4e38), in which the policy computes: scale it in the "
    "environment"
)
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
        if array.dtype.kind == "f" and not usable(array).all():
            one = Checked(field, torch.from_numpy(array)[None], None)
            _raise(one, shown, spec, epoch, t, block.start)


def check_choice(block: Block, logprob: Array, policy: nn.Module, spec: EnvSpec, t: int, epoch: int) -> None:
    """Check a block in which `logprob` [n] is -inf: all logits of a head are. Masked rows do not count.

    Raises:
        NonFiniteError: naming the observation or the weight that caused it, else the environment.
    """
    rows = np.flatnonzero((logprob == -np.inf) & block.rows.mask)
    if not len(rows):
        return
    check_block(block, spec, t, epoch)
    check_weights(policy, epoch)
    env, in_env = divmod(block.start + int(rows[0]), spec.agents_per_env)
    raise NonFiniteError(
        f"no action can be taken in environment {env} (agent {in_env} of it), row {t} of the rollout of epoch "
        f"{epoch}: {NO_CHOICE}"
    )


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


class Checked(NamedTuple):
    """An array that can be non-finite after a rollout."""

    field: str
    array: Tensor
    """[T or T+1, N, …]."""
    rows: Callable[[], Tensor] | None
    """Returns the rows that count, bool of the array's first two axes; None: all do."""

    def fault(self) -> Tensor:
        """Returns [] bool on the array's device: an entry that counts is NaN or infinite."""
        if self.rows is None or self.array.device.type == "cpu":
            found = fault(self.array)
            if self.rows is None or not found:  # nearly always
                return found
        return self.wrong().any()

    def wrong(self) -> Tensor:
        """Returns the entries that count and are not finite, bool in the array's shape."""
        wrong = ~torch.isfinite(self.array.float())
        if self.rows is None:
            return wrong
        rows = self.rows()
        return wrong & rows.view(*rows.shape, *[1] * (wrong.dim() - 2))


def checked(buffers: Buffers, spec: EnvSpec) -> dict[str, Checked]:
    """Returns what can be non-finite after a rollout, by the name shown, in the order of cause and effect."""
    b = buffers

    def live() -> Tensor:
        return b.mask[: b.horizon]

    fields = [(_shown(name, spec), Checked("observation", leaf, None)) for name, leaf in b.obs.items()]
    fields += [
        ("reward", Checked("reward", b.reward, live)),
        ("action", Checked("action", b.action, live)),
        ("log-probability", Checked("log-probability", b.logprob, live)),
        ("value", Checked("value", b.value, lambda: read_values(b, spec))),
    ]
    if b.bootstrap is not None:
        fields.append(("value of a final observation", Checked("bootstrap", b.bootstrap, None)))
    return {shown: one for shown, one in fields if one.array.dtype.is_floating_point and one.array.numel()}


def read_values(buffers: Buffers, spec: EnvSpec) -> Tensor:
    """Returns [T+1, N] bool: rows whose value is learnt from, their own or as the next value of the row before."""
    b = buffers
    live, own = b.mask[: b.horizon], spec.has_final_obs and b.bootstrap is None
    ended = b.terminal if own else b.terminal | b.truncation
    read = b.mask.clone()
    read[1:] |= live & ~ended
    return read


def fault(array: Tensor) -> Tensor:
    """[] bool on the array's device: an entry is NaN or infinite, or too large for float32."""
    low, high = torch.aminmax(array)  # both pass NaN on
    return ~(low.float().isfinite() & high.float().isfinite())


def usable(array: Array) -> Array:
    """Returns which entries are finite, bool in the array's shape; of float64 those that float32 can hold, in which
    policies compute."""
    if array.dtype != np.float64:
        return np.isfinite(array)
    with np.errstate(over="ignore"):
        return np.isfinite(array.astype(np.float32))


def illegal_rows(buffers: Buffers, spec: EnvSpec) -> Tensor:
    """Returns [T, N] bool: a row with mask=True whose action mask leaves a head without a legal choice."""
    assert buffers.action_mask is not None
    rows = buffers.action_mask[: buffers.horizon].split(spec.action.nvec, -1)
    legal = torch.stack([head.any(-1) for head in rows], -1).all(-1)
    return buffers.mask[: buffers.horizon] & ~legal


def check_action_mask(buffers: Buffers, spec: EnvSpec, epoch: int) -> NoReturn:
    """Raises EnvError naming the first of `illegal_rows`."""
    rows = illegal_rows(buffers, spec).nonzero()
    if not len(rows):  # the rollout launched ahead has written over it
        raise EnvError(
            f"{spec.name} gave an action mask without a legal choice in the rollout of epoch {epoch}"
        )
    row, agent = rows[0].tolist()
    assert buffers.action_mask is not None
    heads = buffers.action_mask[row, agent].split(spec.action.nvec)
    head = [bool(one.any()) for one in heads].index(False)
    raise without_choice(spec, agent, f", row {row} of the rollout of epoch {epoch}", head)


def check_rollout(faults: Mapping[str, float], buffers: Buffers, spec: EnvSpec, epoch: int) -> None:
    """Judge a whole rollout by what was read from the device.

    Args:
        faults: for each name of `checked`: not 0 where `fault` is true of its array.

    Raises:
        NonFiniteError: naming the first field that is not finite, and where.
    """
    for shown, one in checked(buffers, spec).items():
        if faults[shown]:
            _raise(one, shown, spec, epoch)


def _raise(one: Checked, shown: str, spec: EnvSpec, epoch: int, t: int = 0, agent: int = 0) -> NoReturn:
    """Name the first entry of `one` that counts and is not finite; t, agent: where its array starts."""
    field, array, entries = one.field, one.array, one.wrong().nonzero()
    if not len(entries):  # the rollout launched ahead has written over it
        raise NonFiniteError(f"{shown} is not finite in the rollout of epoch {epoch}: {CAUSES[field]}")
    first = entries[0].tolist()
    value = array[tuple(first)].item()
    row, column, *place = first
    env, in_env = divmod(agent + column, spec.agents_per_env)
    where = f", entry {place}" if place else ""
    cause = NO_CHOICE if field == "log-probability" and value == -math.inf else CAUSES[field]
    if field == "observation" and math.isfinite(value):
        cause = TOO_LARGE
    raise NonFiniteError(
        f"{shown} is {value} in environment {env} (agent {in_env} of it{where}), row {t + row} of the "
        f"rollout of epoch {epoch}: {cause}"
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
