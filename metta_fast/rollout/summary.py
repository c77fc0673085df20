"""Summarises a rollout without the host waiting: steps, episodes, faults; and scales its rewards.

Place in the flow: after a rollout, before the advantage. `run` works on the device and can be captured in a CUDA
graph; `read` judges its figures once they are on the host:

    figures  [rows | episodes, return, length, *stats | faults]  float64
             rows      unmasked rows: agent steps
             episodes  that were counted, and their sums, as EpisodeStats gives them
             faults    for each array that can be non-finite: not 0 where an entry is that is learnt from; last, if
                       asked for: not 0 where a live row has no legal choice

Faults and episodes are of the rewards as the environment gave them; the scale comes last.
On a GPU with Triton two kernels do all of it (triton_summary.py), else torch operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import EnvSpec
from metta_fast.rollout.episode_stats import EpisodeStats
from metta_fast.rollout.finite_checks import (
    check_action_mask,
    check_rollout,
    checked,
    illegal_rows,
)
from metta_fast.rollout.reward_scale import RewardScale

IN_KERNEL = ("reward", "log-probability", "value")
"""The arrays that every rollout has; other float arrays (observations, box actions) follow them in `figures`."""
ACTION_MASK = "action mask"


class Summary:
    """Owns `figures`; the state that lasts is in `episodes` and `reward_scale`, which it brings up to date."""

    def __init__(
        self,
        spec: EnvSpec,
        buffers: Buffers,
        episodes: EpisodeStats,
        reward_scale: RewardScale | None,
        *,
        kernels: bool = False,
        masks: bool = False,
    ) -> None:
        """kernels: by triton_summary.py. masks: look at action masks, which a rollout of blocks checks itself."""
        self.spec, self.buffers = spec, buffers
        self.episodes, self.reward_scale = episodes, reward_scale
        self._arrays = checked(buffers, spec)
        self._others = {shown: one for shown, one in self._arrays.items() if shown not in IN_KERNEL}
        self._masks = masks and buffers.action_mask is not None
        self.faults = (*IN_KERNEL, *self._others, *[ACTION_MASK] * self._masks)
        """Names of the faults, in the order of `figures`."""
        self._sums = 1 + len(episodes.names)
        self.figures = torch.zeros(
            1 + self._sums + len(self.faults), dtype=torch.float64, device=buffers.device
        )
        self._kernels = None
        if kernels:
            from metta_fast.rollout.triton_summary import GpuSummary

            self._kernels = GpuSummary(spec, buffers, episodes, reward_scale, self.figures)

    def run(self) -> None:
        """Take in the rollout in the buffers: fill `figures`, then scale the rewards in place."""
        others = [one.fault() for one in self._others.values()]
        if self._masks:
            others.append(illegal_rows(self.buffers, self.spec).any())
        if self._kernels is not None:
            self._kernels.run()
            for i, found in enumerate(others, start=len(self.figures) - len(others)):
                self.figures[i] = found
            return
        b = self.buffers
        rows = b.mask[: b.horizon].sum()
        faults = torch.stack([*(self._arrays[name].fault() for name in IN_KERNEL), *others])
        torch.cat([rows.view(1).double(), self.episodes.add(b), faults.double()], out=self.figures)
        if self.reward_scale:
            self.reward_scale.apply(b)

    def bad(self) -> torch.Tensor:
        """Returns [] float32 on the device: 1 if there is a fault."""
        return (self.figures[1 + self._sums :].sum() > 0).float()

    def read(self, figures: Sequence[float], epoch: int) -> tuple[int, dict[str, float]]:
        """Judge `figures` as read from the device.

        Returns:
            (agent steps of the rollout, env/* metrics of the episodes that ended in it).

        Raises:
            NonFiniteError: naming the first field that is not finite, and where.
            EnvError: an action mask without a legal choice.
        """
        faults = dict(zip(self.faults, figures[1 + self._sums :]))
        check_rollout(faults, self.buffers, self.spec, epoch)
        if faults.get(ACTION_MASK):
            check_action_mask(self.buffers, self.spec, epoch)
        return int(figures[0]), self.episodes.means(list(figures[1 : 1 + self._sums]))
