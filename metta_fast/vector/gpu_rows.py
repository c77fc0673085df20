"""Defines rows of tensors: the GPU vector's own, views of Buffers, addresses for kernels, copies on the host.

Place in the flow: only vector/gpu.py and gpu_engine.py use this.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts.device_vector import DeviceRows
from metta_fast.contracts.env import Array, EnvSpec, Rows
from metta_fast.contracts.vector import Block

POINTERS = ("action", "obs", "reward", "terminal", "truncation", "mask", "reset", "stats")


class RowPointers(ctypes.Structure):
    """mf_rows of gpu_shell.h, field for field."""

    _fields_ = [(name, ctypes.c_void_p) for name in POINTERS]


class TensorRows(NamedTuple):
    """Holds the arrays of contracts/env.py: Rows as tensors."""

    obs: Mapping[str, Tensor]
    action: Tensor
    reward: Tensor
    terminal: Tensor
    truncation: Tensor
    mask: Tensor
    reset: Tensor
    stats: Tensor

    def slice(self, start: int, stop: int) -> TensorRows:
        """Returns views of agents [start, stop) of these rows."""
        return TensorRows({k: v[start:stop] for k, v in self.obs.items()}, *(a[start:stop] for a in self[1:]))


def own_rows(spec: EnvSpec, num_agents: int, device: torch.device) -> TensorRows:
    """Returns new rows, filled with zeros."""

    def array(dtype: str, *shape: int) -> Tensor:
        return torch.zeros((num_agents, *shape), dtype=getattr(torch, dtype), device=device)

    return TensorRows(
        {name: array(leaf.dtype, *leaf.shape) for name, leaf in spec.obs.items()},
        action=array(spec.action.dtype, spec.action.width),
        reward=array("float32"),
        terminal=array("bool"),
        truncation=array("bool"),
        mask=array("bool"),
        reset=array("bool"),
        stats=array("float32", len(spec.stats)),
    )


def buffer_rows(b: DeviceRows, t: int) -> TensorRows:
    """Returns the rows that the step of row t reads and writes."""
    return TensorRows(
        {name: leaf[t + 1] for name, leaf in b.obs.items()},
        action=b.given_actions(t),
        reward=b.reward[t],
        terminal=b.terminal[t],
        truncation=b.truncation[t],
        mask=b.mask[t + 1],
        reset=b.reset[t + 1],
        stats=b.stats[t],
    )


def named(rows: TensorRows) -> list[tuple[str, Tensor]]:
    """Returns every array with its name; those of observations are obs/leaf."""
    return [*((f"obs/{k}", v) for k, v in rows.obs.items()), *zip(TensorRows._fields[1:], rows[1:])]


def copy_rows(rows: TensorRows) -> TensorRows:
    """Returns a copy on the device."""
    return TensorRows({name: leaf.clone() for name, leaf in rows.obs.items()}, *(a.clone() for a in rows[1:]))


def on_host(rows: TensorRows) -> Rows:
    """Returns a copy as NumPy arrays."""

    def host(tensor: Tensor) -> Array:
        return tensor.to("cpu", copy=True).numpy()

    return Rows({name: host(leaf) for name, leaf in rows.obs.items()}, *(host(a) for a in rows[1:]))


def put_rows(rows: TensorRows, host: Rows) -> None:
    """Copies NumPy arrays into the rows."""
    for name, leaf in rows.obs.items():
        leaf.copy_(torch.from_numpy(host.obs[name]))
    for to, value in zip(rows[1:], host[1:]):
        to.copy_(torch.from_numpy(value))


def pointers(spec: EnvSpec, num_agents: int, rows: TensorRows) -> RowPointers:
    """Returns the addresses of the rows' arrays. Raises ValueError for an array that kernels cannot use."""
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
    """Copies actions [size, width] into the block's row. Raises ValueError or TypeError for another shape or dtype."""
    to = cast("Tensor", block.rows.action)
    if tuple(actions.shape) != tuple(to.shape):
        raise ValueError(
            f"actions of block {block.index} have shape {tuple(actions.shape)}, expected {tuple(to.shape)}"
        )
    given = actions if isinstance(actions, Tensor) else torch.from_numpy(np.ascontiguousarray(actions))
    if not torch.can_cast(given.dtype, to.dtype):
        raise TypeError(f"actions of block {block.index} are {given.dtype}, expected {to.dtype}")
    to.copy_(given)
