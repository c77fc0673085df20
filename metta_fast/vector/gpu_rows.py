"""Rows of tensors: the GPU vector's own, those of Buffers, their addresses for kernels, and copies on the host.

Place in the flow: vector/gpu.py alone uses this. `Rows` are typed for numpy arrays; here they hold tensors.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import Array, EnvSpec, Rows
from metta_fast.contracts.vector import Block

POINTERS = ("action", "obs", "reward", "terminal", "truncation", "mask", "reset", "stats")


class RowPointers(ctypes.Structure):
    """mf_rows of gpu_shell.h, field for field."""

    _fields_ = [(name, ctypes.c_void_p) for name in POINTERS]


def own_rows(spec: EnvSpec, num_agents: int, device: torch.device) -> Rows:
    def array(dtype: str, *shape: int) -> Any:
        return torch.zeros((num_agents, *shape), dtype=getattr(torch, dtype), device=device)

    return Rows(
        {name: array(leaf.dtype, *leaf.shape) for name, leaf in spec.obs.items()},
        action=array(spec.action.dtype, spec.action.width),
        reward=array("float32"),
        terminal=array("bool"),
        truncation=array("bool"),
        mask=array("bool"),
        reset=array("bool"),
        stats=array("float32", len(spec.stats)),
    )


def buffer_rows(b: Buffers, t: int) -> Rows:
    """What the step of row t reads and writes."""
    obs: dict[str, Any] = {name: leaf[t + 1] for name, leaf in b.obs.items()}
    after: dict[str, Any] = {name: getattr(b, name)[t + 1] for name in ("mask", "reset")}
    of_action = ("action", "reward", "terminal", "truncation", "stats")
    return Rows(obs, **after, **{name: getattr(b, name)[t] for name in of_action})


def named(rows: Rows) -> list[tuple[str, Any]]:
    return [*((f"obs/{k}", v) for k, v in rows.obs.items()), *zip(Rows._fields[1:], rows[1:])]


def copy_rows(rows: Rows) -> Rows:
    """A copy on the device."""
    tensors: dict[str, Any] = {name: tensor.clone() for name, tensor in named(rows)}
    return Rows({name: tensors.pop(f"obs/{name}") for name in rows.obs}, **tensors)


def on_host(rows: Rows) -> Rows:
    """A copy as numpy arrays."""
    tensors: dict[str, Any] = dict(named(rows))
    arrays: dict[str, Any] = {name: tensor.to("cpu", copy=True).numpy() for name, tensor in tensors.items()}
    return Rows({name: arrays.pop(f"obs/{name}") for name in rows.obs}, **arrays)


def pointers(spec: EnvSpec, num_agents: int, rows: Rows) -> RowPointers:
    """Addresses of the rows' arrays, which must be what kernels expect. Raises ValueError."""
    wanted = _shapes(spec, num_agents)
    at: dict[str, int] = {}
    for name, tensor in named(rows):
        dtype, shape = wanted[name]
        if str(tensor.dtype) != f"torch.{dtype}" or tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(
                f"rows.{name} is {tensor.dtype} {tuple(tensor.shape)}, expected contiguous {dtype} {shape}"
            )
        if name == "obs/obs" and tensor[0].nbytes % 8 == 0 and tensor.data_ptr() % 8:
            raise ValueError("rows.obs is not aligned to 8 bytes")
        at[name.removeprefix("obs/")] = tensor.data_ptr()
    return RowPointers(**at)


def _shapes(spec: EnvSpec, n: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        **{f"obs/{name}": (leaf.dtype, (n, *leaf.shape)) for name, leaf in spec.obs.items()},
        "action": (spec.action.dtype, (n, spec.action.width)),
        "reward": ("float32", (n,)),
        **dict.fromkeys(("terminal", "truncation", "mask", "reset"), ("bool", (n,))),
        "stats": ("float32", (n, len(spec.stats))),
    }


def put_actions(block: Block, actions: Array | Tensor) -> None:
    to: Any = block.rows.action
    if tuple(actions.shape) != tuple(to.shape):
        raise ValueError(
            f"actions of block {block.index} have shape {tuple(actions.shape)}, expected {tuple(to.shape)}"
        )
    given = actions if isinstance(actions, Tensor) else torch.from_numpy(np.ascontiguousarray(actions))
    if not torch.can_cast(given.dtype, to.dtype):
        raise TypeError(f"actions of block {block.index} are {given.dtype}, expected {to.dtype}")
    to.copy_(given)
