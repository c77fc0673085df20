"""Steps a source of tensors as a batch in NumPy, for what plays on the CPU: evaluations, replays, exports.

Place in the flow: factory.py makes one for environments in JAX (metta_fast.contracts.env.EnvBatch).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from metta_fast.contracts.env import Array, Rows
from metta_fast.envs.batched.torch_source import Source, leaf_of
from metta_fast.envs.spaces import Part


class SourceBatch:
    """Steps N environments that reset themselves in the same step. mask: the leaf that is the action mask."""

    rows: Rows

    def __init__(
        self, source: Source, parts: tuple[Part, ...], mask: Part | None, num_envs: int, device: torch.device
    ) -> None:
        self.source, self.parts, self.mask = source, parts, mask
        self.size, self.device = num_envs, device

    def bind(self, rows: Rows) -> None:
        self.rows = rows

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        """Restarts all environments; `stagger` has no effect."""
        rows = self.rows
        self._show(self.source.reset(seed, stagger=False))
        rows.reward[:] = 0.0
        rows.terminal[:] = rows.truncation[:] = False
        rows.mask[:] = rows.reset[:] = True

    def step(self) -> None:
        rows = self.rows
        found = self.source.step(torch.from_numpy(rows.action.copy()).to(self.device))
        for to, value in (
            (rows.reward, found.reward),
            (rows.terminal, found.terminal),
            (rows.truncation, found.truncation),
        ):
            to[:] = value.cpu().numpy()
        np.logical_or(rows.terminal, rows.truncation, out=rows.reset)
        if found.begins is not None and found.waiting is not None:
            rows.reset[:] = found.begins.cpu().numpy()
            np.logical_not(found.waiting.cpu().numpy(), out=rows.mask)
        self._show(found.obs)

    def _show(self, obs: Any) -> None:
        for part in self.parts:
            self.rows.obs[part.name][...] = self._leaf(part, obs)
        if self.mask is not None:
            self.rows.action_mask[...] = self._leaf(self.mask, obs).reshape(self.size, -1)

    def _leaf(self, part: Part, obs: Any) -> Array:
        found: Array = leaf_of(part, obs, self.size, self.device).cpu().numpy()
        return found

    def native_job(self) -> None:
        return None

    def notes(self) -> dict[str, str]:
        """Returns messages for the user, by their kind."""
        return self.source.notes

    def info_sums(self) -> dict[str, tuple[float, int]]:
        """Returns the means since the last call, each as one value."""
        return {name: (mean, 1) for name, mean in self.source.sums.means().items()}

    def last_info(self) -> dict[int, dict[str, Array]]:
        """Returns nothing: the numbers are added up where the environments are."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        raise ValueError("a batch for evaluations is not saved")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise ValueError("a batch for evaluations is not loaded")

    def close(self) -> None:
        self.source.close()
