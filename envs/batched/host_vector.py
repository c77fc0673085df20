"""Steps a batch in NumPy and copies its rows to the learner's device: one copy of each array in each row.

    Buffers' action[t] ─► host ─► GymBatch.step ─► rows in (pinned) host memory ─► Buffers' row t+1, final_obs

Place in the flow: factory.py makes one for Gymnasium's vector environments and EnvPool.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts.env import Array, EnvSpec
from metta_fast.contracts.slab import slab_rows, slab_size
from metta_fast.envs.batched.base_vector import BatchedVector
from metta_fast.envs.batched.gym_batch import GymBatch


class HostVector(BatchedVector):
    """Drives a GymBatch."""

    def __init__(
        self, spec: EnvSpec, batch: GymBatch, device: torch.device, first_env: int, total_envs: int
    ) -> None:
        super().__init__(spec, batch.size, device, first_env, total_envs)
        self.batch, self.sums = batch, batch.sums
        pinned = device.type == "cuda"
        slab = torch.zeros(slab_size(spec, batch.size), dtype=torch.uint8, pin_memory=pinned)
        self.rows = rows = slab_rows(spec, batch.size, slab.numpy())
        self._slab = slab
        batch.bind(rows)
        self._obs = _tensors(rows.obs)
        self._final = None if batch.final is None else _tensors(batch.final)
        self._action, self._reward = torch.from_numpy(rows.action), torch.from_numpy(rows.reward)
        self._terminal, self._truncation = torch.from_numpy(rows.terminal), torch.from_numpy(rows.truncation)
        self._mask, self._reset = torch.from_numpy(rows.mask), torch.from_numpy(rows.reset)
        self._action_mask = torch.from_numpy(rows.action_mask)

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        """`stagger` has no effect: these environments begin at their beginning."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(
                self.device
            ).synchronize()  # copies of the last row still read its memory
        self._guard(self.batch.reset, seed)
        self._ready = True
        self._show(self.buffers.horizon)

    def step_row(self, t: int) -> None:
        b = self.buffers
        self._action.copy_(b.given_actions(t))  # waits for the policy
        self._guard(self.batch.step)
        b.reward[t].copy_(self._reward, non_blocking=True)
        b.terminal[t].copy_(self._terminal, non_blocking=True)
        b.truncation[t].copy_(self._truncation, non_blocking=True)
        if b.final_obs is not None and self._final is not None and self.rows.reset.any():
            for name, leaf in self._final.items():
                b.final_obs[name].copy_(leaf, non_blocking=True)
        self._show(t + 1)

    def _show(self, t: int) -> None:
        b = self.buffers
        for name, leaf in self._obs.items():
            b.obs[name][t].copy_(leaf, non_blocking=True)
        b.mask[t].copy_(self._mask, non_blocking=True)
        b.reset[t].copy_(self._reset, non_blocking=True)
        if b.action_mask is not None:
            b.action_mask[t].copy_(self._action_mask, non_blocking=True)

    def _found_notes(self) -> dict[str, str]:
        return self.batch.notes()

    def _close(self) -> None:
        self.batch.close()


def _tensors(leaves: Mapping[str, Array]) -> dict[str, Tensor]:
    """Returns tensors over the same memory."""
    return {name: torch.from_numpy(np.asarray(leaf)) for name, leaf in leaves.items()}
