"""Copies a block's rows into Buffers[t], and chosen actions back into the slab.

    CPU          slab ─► buffers = what the policy reads                 (numpy views of one memory)
    CUDA         slab ─► buffers on the GPU; small fields ─► pinned staging ─► buffers, once an epoch
    cpu_offload  slab ─► buffers in pinned host memory, and slab ─► the policy's input on the GPU

The slab is pinned where the policy is on CUDA, so its rows go over without another copy and without the host
waiting. `zero_copy=false` puts a private copy of the observation in between.

A row that carries obs[t] carries reward, terminal, truncation and stats of action[t−1].

Observations of masked rows that are not finite are replaced by 0, unless a truncation bootstraps from them: the policy
runs through these rows, but nothing is learnt from them.
"""

from __future__ import annotations

import weakref

import numpy as np
import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import Array
from metta_fast.contracts.vector import Block, VectorEnv
from metta_fast.rollout.finite_checks import usable

SMALL = ("mask", "reset", "reward", "terminal", "truncation", "stats")


class Transfer:
    """Copies with policy and buffers on the CPU; the base of the others."""

    def __init__(self, vec: VectorEnv, buffers: Buffers, device: torch.device, *, zero_copy: bool) -> None:
        self.vec, self.buffers, self.device = vec, buffers, device
        self.small = self._small_fields()
        self._mask, self._reset, self._reward, self._terminal, self._truncation, self._stats = (
            self.small[name].numpy() for name in SMALL
        )
        self._private = not zero_copy
        self._floats = [name for name, leaf in vec.spec.obs.items() if leaf.dtype.startswith("float")]
        """Leaves that can hold NaN or infinity."""
        self._sources: list[dict[str, Array]] = [
            {name: self._host(leaf).numpy() for name, leaf in block.rows.obs.items()}
            if self._private
            else dict(block.rows.obs)
            for block in vec.blocks
        ]
        """Arrays that each block's observation is copied from: the slab's, or the private copy's."""
        self._obs = self._obs_targets()

    def load(self, block: Block, t: int) -> None:
        """Copy what the policy reads for row t."""
        rows = block.rows
        if self._floats and not rows.mask.all():
            self._clean(block, t)
        if self._private:
            for name, leaf in self._sources[block.index].items():
                np.copyto(leaf, rows.obs[name])
        self._load_obs(block, t)
        self._reset[t, block.start : block.stop] = rows.reset
        if self.buffers.action_mask is not None:
            to = self.buffers.action_mask[t, block.start : block.stop]
            to.copy_(torch.from_numpy(rows.action_mask), non_blocking=True)

    def load_rest(self, block: Block, t: int) -> None:
        """Copy the rest of row t, and what belongs to action[t-1] into row t-1, if there is one."""
        rows, at = block.rows, slice(block.start, block.stop)
        self._mask[t, at] = rows.mask
        if t == 0:
            return
        t -= 1
        self._reward[t, at] = rows.reward
        self._terminal[t, at] = rows.terminal
        self._truncation[t, at] = rows.truncation
        if self._stats.shape[2] and (rows.terminal.any() or rows.truncation.any()):
            self._stats[t, at] = rows.stats

    def inputs(self, block: Block, t: int) -> tuple[dict[str, Tensor], Tensor]:
        """Returns what the policy reads for row t, on its device: obs {leaf: [1, n, …]}, reset [1, n]."""
        a, b = block.start, block.stop
        return (
            {name: leaf[t : t + 1, a:b] for name, leaf in self.buffers.obs.items()},
            self.buffers.reset[t : t + 1, a:b],
        )

    def action_mask(self, block: Block, t: int) -> Tensor | None:
        """Returns row t's action mask on the policy's device, [1, n, P]; None for environments without one."""
        masks = self.buffers.action_mask
        return None if masks is None else masks[t : t + 1, block.start : block.stop]

    def give(self, block: Block, given: Tensor) -> None:
        """Copy the action [1, n, W], as the environment gets it, to the slab."""
        np.copyto(block.rows.action, given[0].numpy())

    def keep(self, block: Block, t: int, action: Tensor, logprob: Tensor) -> None:
        """Copy row t's action [1, n, W] and log-probability [1, n] to the buffers."""
        a, b = block.start, block.stop
        self.buffers.action[t, a:b].copy_(action[0], non_blocking=True)
        self.buffers.logprob[t, a:b].copy_(logprob[0], non_blocking=True)

    def wait(self, block: Block) -> None:
        """Wait until the actions are in the slab and its row was read, so that the block can be sent."""

    def finish(self) -> None:
        """Complete the rollout: afterwards everything is in the buffers, in stream order."""

    def _clean(self, block: Block, t: int) -> None:
        """Puts 0 in place of entries that are not finite, in masked rows whose value is not used."""
        rows = block.rows
        unused = ~rows.mask
        if t:  # V of row 0 is used by no row of this epoch, except its own
            before = self._mask[t - 1, block.start : block.stop]
            if self.vec.spec.has_final_obs:
                unused &= ~(before & rows.truncation & ~rows.terminal)
        which = np.flatnonzero(unused)
        for name in self._floats:
            leaf = rows.obs[name]
            seen = leaf[which]
            if not usable(seen).all():
                leaf[which] = np.where(usable(seen), seen, 0)

    # ---- what the others change ----

    def _host(self, like: Array) -> Tensor:
        """Returns host memory in the shape of a NumPy array."""
        return torch.empty(
            like.shape, dtype=torch.from_numpy(like).dtype, pin_memory=self.device.type == "cuda"
        )

    def _small_fields(self) -> dict[str, Tensor]:
        return {name: getattr(self.buffers, name) for name in SMALL}

    def _obs_targets(self) -> dict[str, Array]:
        return {name: leaf.numpy() for name, leaf in self.buffers.obs.items()}

    def _load_obs(self, block: Block, t: int) -> None:
        for name, leaf in self._sources[block.index].items():
            np.copyto(self._obs[name][t, block.start : block.stop], leaf)


class CudaTransfer(Transfer):
    """Copies with policy and buffers on the GPU."""

    def __init__(
        self, vec: VectorEnv, buffers: Buffers, device: torch.device, *, zero_copy: bool, reset_can_wait: bool
    ) -> None:
        super().__init__(vec, buffers, device, zero_copy=zero_copy)
        pin(vec.slab, self)
        self._copies = [
            [
                (torch.from_numpy(leaf), buffers.obs[name][:, block.start : block.stop].unbind())
                for name, leaf in obs.items()
            ]
            for block, obs in zip(vec.blocks, self._sources)
        ]
        """For each leaf of each block: the source in pinned memory, and the buffers' rows."""
        self._actions = [torch.from_numpy(block.rows.action) for block in vec.blocks]
        self._event, self._stream = torch.cuda.Event(), torch.cuda.current_stream(device)
        self._reset_can_wait = reset_can_wait

    def load(self, block: Block, t: int) -> None:
        super().load(block, t)
        if not self._reset_can_wait:
            a, b = block.start, block.stop
            self.buffers.reset[t, a:b].copy_(self.small["reset"][t, a:b], non_blocking=True)

    def give(self, block: Block, given: Tensor) -> None:
        self._actions[block.index].copy_(given[0], non_blocking=True)
        self._event.record(self._stream)

    def wait(self, block: Block) -> None:
        self._event.synchronize()

    def finish(self) -> None:
        for name in SMALL:
            getattr(self.buffers, name).copy_(self.small[name], non_blocking=True)

    def _small_fields(self) -> dict[str, Tensor]:
        return {
            name: torch.zeros_like(getattr(self.buffers, name), device="cpu").pin_memory() for name in SMALL
        }

    def _obs_targets(self) -> dict[str, Array]:
        return {}

    def _load_obs(self, block: Block, t: int) -> None:
        for source, rows in self._copies[block.index]:
            rows[t].copy_(source, non_blocking=True)


class OffloadTransfer(Transfer):
    """Copies with the policy on the GPU and buffers in pinned host memory (trainer.cpu_offload)."""

    def __init__(self, vec: VectorEnv, buffers: Buffers, device: torch.device, *, zero_copy: bool) -> None:
        super().__init__(vec, buffers, device, zero_copy=zero_copy)
        self._actions = [torch.from_numpy(block.rows.action) for block in vec.blocks]
        pin(vec.slab, self)
        self._inputs = [
            (
                {
                    name: torch.empty((1, *leaf.shape), dtype=torch.from_numpy(leaf).dtype, device=device)
                    for name, leaf in block.rows.obs.items()
                },
                torch.empty((1, block.size), dtype=torch.bool, device=device),
            )
            for block in vec.blocks
        ]
        self._event = torch.cuda.Event()

    def action_mask(self, block: Block, t: int) -> Tensor | None:
        mask = super().action_mask(block, t)
        return None if mask is None else mask.to(self.device, non_blocking=True)

    def inputs(self, block: Block, t: int) -> tuple[dict[str, Tensor], Tensor]:
        obs, reset = self._inputs[block.index]
        host_obs, host_reset = super().inputs(block, t)
        for name, leaf in obs.items():
            leaf.copy_(host_obs[name], non_blocking=True)
        reset.copy_(host_reset, non_blocking=True)
        return obs, reset

    def give(self, block: Block, given: Tensor) -> None:
        self._actions[block.index].copy_(given[0], non_blocking=True)
        self._event.record()

    def wait(self, block: Block) -> None:
        self._event.synchronize()

    def finish(self) -> None:
        torch.cuda.current_stream(self.device).synchronize()


def make_transfer(
    vec: VectorEnv, buffers: Buffers, device: torch.device, *, zero_copy: bool, reset_can_wait: bool = False
) -> Transfer:
    """Returns the transfer for the devices of the policy (`device`) and of the buffers.

    Args:
        reset_can_wait: the policy does not read `reset` in the rollout, so it is copied with the other small fields.
    """
    if device.type == "cpu":
        return Transfer(vec, buffers, device, zero_copy=zero_copy)
    if buffers.device.type == "cuda":
        return CudaTransfer(vec, buffers, device, zero_copy=zero_copy, reset_can_wait=reset_can_wait)
    return OffloadTransfer(vec, buffers, device, zero_copy=zero_copy)


def pin(slab: Array, owner: object) -> None:
    """Page-lock the vector's slab until `owner` is garbage-collected, and keep its memory alive until then.

    Raises:
        RuntimeError: CUDA refuses, for example by `ulimit -l`.
    """
    runtime = torch.cuda.cudart()
    error = runtime.cudaHostRegister(slab.ctypes.data, slab.nbytes, 0)
    if int(error) != 0:
        raise RuntimeError(
            f"the vector's slab of {slab.nbytes} bytes cannot be page-locked (CUDA error {int(error)}); "
            "raise the limit of locked memory (ulimit -l), or give fewer env.num_envs"
        )
    weakref.finalize(owner, _unpin, slab)


def _unpin(slab: Array) -> None:
    torch.cuda.cudart().cudaHostUnregister(slab.ctypes.data)
