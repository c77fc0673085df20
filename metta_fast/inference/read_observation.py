"""Converts observations from a user's program to the leaves [n, *shape] that a policy reads.

    spec's own form      {leaf: [n, *shape]} or [*shape] for one agent; or just the array, if there is one leaf
    an environment's     the observation of a Gymnasium environment: nested Dict and Tuple, whole numbers of
                         Discrete and MultiDiscrete (leaves hold them one-hot)

Place in the flow: loaded_policy.py calls it for each observation given to `act`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from metta_fast.contracts.env import Array, EnvSpec, Leaf
from metta_fast.contracts.errors import UserError

if TYPE_CHECKING:
    from metta_fast.envs.spaces import Part


def read_observation(obs: Any, spec: EnvSpec, parts: Sequence[Part] = ()) -> tuple[dict[str, Array], bool]:
    """Returns ({leaf: [n, *shape]}, whether obs was that of one agent, without the axis n).

    Args:
        parts: a Python environment's parts (`PythonEnvFactory.parts`): its own form is accepted too.

    Raises:
        UserError: a leaf is missing or has another shape or dtype, or leaves differ in the number of agents.
    """
    one_hot = {part.name: part for part in parts if part.nvec}
    leaves, leads = {}, {}
    for name, value in _named(obs, spec, parts).items():
        array = as_array(value, f"observation {name!r}")
        if name in one_hot and array.dtype != np.uint8:
            leaves[name], leads[name] = _one_hot(array, one_hot[name])
        else:
            leaves[name], leads[name] = _as_it_is(array, name, spec.obs[name])
    if len(set(leads.values())) > 1:
        counts = ", ".join(f"{name} {lead[0] if lead else 'one, no axis'}" for name, lead in leads.items())
        raise UserError(f"the observation's leaves differ in the number of agents: {counts}")
    single = not next(iter(leads.values()))
    return {name: np.ascontiguousarray(leaf) for name, leaf in leaves.items()}, single


def as_array(value: Any, what: str) -> Array:
    """Converts an array, a list or a torch tensor on any device to a NumPy array.

    Raises:
        UserError: it is none of these.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{what} is a {type(value).__name__} that cannot be converted to an array ({error})"
        ) from error
    if array.dtype.kind not in "biuf":
        raise UserError(f"{what} is a {type(value).__name__}, expected an array of numbers")
    return array


def _named(obs: Any, spec: EnvSpec, parts: Sequence[Part]) -> dict[str, Any]:
    """Returns {leaf: value}, matched by name in any order."""
    if not isinstance(obs, Mapping) and len(spec.obs) == 1 and not (parts and parts[0].path):
        return dict.fromkeys(spec.obs, obs)
    if isinstance(obs, Mapping) and obs.keys() == spec.obs.keys():
        return {name: obs[name] for name in spec.obs}
    if parts and isinstance(obs, (Mapping, tuple)):
        try:
            return {part.name: _at(obs, part.path) for part in parts}
        except (KeyError, IndexError, TypeError):
            pass  # reported below
    given = sorted(map(str, obs)) if isinstance(obs, Mapping) else f"a {type(obs).__name__}"
    raise UserError(f"observation has {given}, expected {sorted(spec.obs)}: see `spec.obs`")


def _at(value: Any, path: Sequence[Any]) -> Any:
    for key in path:
        value = value[key]
    return value


def _as_it_is(array: Array, name: str, leaf: Leaf) -> tuple[Array, tuple[int, ...]]:
    """Returns (array [n, *shape], () for one agent or (n,))."""
    if array.ndim == 0 and leaf.shape == (1,):
        array = array.reshape(1)  # an environment whose observation is a number
    lead = array.shape[: array.ndim - len(leaf.shape)] if array.ndim >= len(leaf.shape) else None
    if lead is None or len(lead) > 1 or array.shape[len(lead) :] != leaf.shape:
        shape = ", ".join(map(str, leaf.shape))
        raise UserError(
            f"observation {name!r} has shape {list(array.shape)}, expected [n, {shape}] for n agents, or "
            f"[{shape}] for one"
        )
    if lead == (0,):
        raise UserError(f"observation {name!r} has shape {list(array.shape)}: expected at least one agent")
    if array.dtype != leaf.dtype:
        raise UserError(
            f"observation {name!r} is {array.dtype}, expected {leaf.dtype}, as in training; "
            f"if the numbers are the same, pass obs.astype('{leaf.dtype}')"
        )
    return (array if lead else array[None]), lead


def _one_hot(array: Array, part: Part) -> tuple[Array, tuple[int, ...]]:
    """Converts whole numbers to the leaf's one-hot form. Returns the same as `_array`."""
    from metta_fast.envs.spaces import FieldError

    lead = array.shape[: max(array.ndim - len(part.shape), 0)]
    if len(lead) > 1:
        raise UserError(
            f"observation {part.name!r} has shape {list(array.shape)}, expected {list(part.shape)} with at "
            "most one axis of agents before it"
        )
    rows = np.zeros((*(lead or (1,)), *part.leaf.shape), np.uint8)
    try:
        part.write(_nested(array, part.path), part.view(rows, lead or (1,)) if lead else rows[0], lead)
    except FieldError as error:
        raise UserError(str(error)) from None
    return rows, lead


def _nested(value: Any, path: Sequence[Any]) -> Any:
    """Returns nested dicts with `value` at `path`."""
    for key in reversed(path):
        value = {key: value}
    return value
