"""Sums returns, lengths and environment statistics of episodes on the buffers' device, once an epoch.

Place in the flow: after a rollout. An episode restarts on either flag. Masked rows take no part. The first
episode of each agent is left out where environments start it in the middle (EnvSpec.stagger).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import EnvSpec
from metta_fast.runtime.state_tensors import tensor
from metta_fast.storage.altered import WrongState, entry, number

LAST = 100
"""Number of episodes whose mean return is env/return_100."""


class RecentReturns:
    """Keeps the mean return of the last LAST episodes, from the number and the mean of each epoch's.

    The oldest epoch counts with as many episodes as are missing, at its mean: its single returns stay on the device.
    """

    def __init__(self) -> None:
        self._epochs: deque[tuple[float, float]] = deque()

    def add(self, episodes: float, mean: float) -> None:
        """Takes an epoch in which `episodes` episodes ended with this mean return."""
        self._epochs.append((episodes, mean))
        count = sum(number for number, _ in self._epochs)
        while count - self._epochs[0][0] >= LAST:
            count -= self._epochs.popleft()[0]

    def mean(self) -> float:
        """Returns the mean of the last LAST episodes, or of all as long as they are fewer."""
        total, missing = 0.0, float(LAST)
        for episodes, mean in reversed(self._epochs):
            total += mean * min(episodes, missing)
            missing -= min(episodes, missing)
        return total / (LAST - missing)

    def state(self) -> list[list[float]]:
        return [[number, mean] for number, mean in self._epochs]

    def load(self, state: Any) -> None:
        """Loads what `state` returned. Raises WrongState if it is something else."""
        pairs = list(state) if isinstance(state, (list, tuple)) else [state]
        for pair in pairs:
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise WrongState("recent_returns", "is no list of pairs (episodes, mean return)")
            for value in pair:
                number(value, "recent_returns", -1e300)
        self._epochs = deque((episodes, mean) for episodes, mean in pairs)


class EpisodeStats:
    """Keeps sums over the episodes that ended in a rollout, and what unfinished episodes have so far."""

    def __init__(self, spec: EnvSpec, num_agents: int, device: torch.device) -> None:
        self.names = ("return", "length", *spec.stats)
        self.recent = RecentReturns()
        n = num_agents
        self.returns = torch.zeros(n, dtype=torch.float64, device=device)
        """[N] return so far of the unfinished episodes; `lengths` likewise."""
        self.lengths = torch.zeros(n, dtype=torch.int64, device=device)
        self.left_out = torch.zeros(n, dtype=torch.bool, device=device)
        """[N] True: the unfinished episode is not counted."""

    def restart(self, *, staggered: bool) -> None:
        """Start again after a reset of all environments; staggered: they start in the middle of an episode."""
        self.returns.zero_()
        self.lengths.zero_()
        self.left_out.fill_(staggered)

    def add(self, buffers: Buffers) -> Tensor:
        """Add a rollout.

        Returns:
            [1 + len(names)] float64 on the buffers' device: number of counted episodes, then sums by `names`.
        """
        mask = buffers.mask[: buffers.horizon]
        done = (buffers.terminal | buffers.truncation) & mask
        totals = torch.where(mask, buffers.reward, 0).double().cumsum(0) + self.returns  # [T, N]
        rows = mask.cumsum(0) + self.lengths
        number = done.cumsum(0)
        ends = number[-1]
        ended = ends > 0
        time = torch.arange(1, buffers.horizon + 1, device=done.device).unsqueeze(1)
        last = ((done * time).amax(0) - 1).clamp_(min=0)  # row of the last end (0 where none)
        counted = done & ~(self.left_out & (number == 1))
        first = (done & (number == 1)).to(torch.uint8).argmax(0)

        def sum_of(series: Tensor, running: Tensor) -> Tensor:
            """Returns the sum over the counted episodes; `running` becomes what the unfinished ones have so far."""
            up_to_last = torch.where(ended, series.gather(0, last.unsqueeze(0))[0], 0)
            up_to_first = torch.where(ended & self.left_out, series.gather(0, first.unsqueeze(0))[0], 0)
            torch.sub(series[-1], up_to_last, out=running)
            return (up_to_last - up_to_first).sum().double()

        sums = torch.stack([counted.sum().double(), sum_of(totals, self.returns), sum_of(rows, self.lengths)])
        self.left_out &= ~ended
        if not buffers.stats.shape[2]:
            return sums
        if counted.device.type == "cpu":  # to pick the few rows is quicker, and their number is there at once
            return torch.cat([sums, buffers.stats[counted].double().sum(0)])
        return torch.cat([sums, torch.where(counted.unsqueeze(2), buffers.stats, 0).sum((0, 1)).double()])

    def means(self, sums: list[float]) -> dict[str, float]:
        """Returns `add`'s figures of an epoch as metrics: env/return, env/length, env/<stat>, env/episodes (how many
        ended) and env/return_100, the mean of the last LAST. Empty if none ended. Call it once an epoch, in order."""
        if not sums[0]:
            return {}
        found = {f"env/{name}": total / sums[0] for name, total in zip(self.names, sums[1:])}
        self.recent.add(sums[0], found["env/return"])
        return found | {"env/return_100": self.recent.mean(), "env/episodes": sums[0]}

    def state_dict(self) -> dict[str, Any]:
        return {
            "returns": self.returns.clone(),
            "lengths": self.lengths.clone(),
            "left_out": self.left_out.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        own = {name: getattr(self, name) for name in ("returns", "lengths", "left_out")}
        for name, to in own.items():
            key = f"rollout.episodes.{name}"
            tensor(entry(state, name, "rollout.episodes."), key, to.shape, like=to.dtype)
        for name, to in own.items():
            to.copy_(state[name])
