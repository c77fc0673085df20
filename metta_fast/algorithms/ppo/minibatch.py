"""Gathers whole segments from the buffers into a minibatch.

Segment s (of horizon / bptt_horizon) of agent n has the number s · num_agents + n. Gathered rows are time-major
[bptt_horizon, B]: the core runs over them as in the rollout, from the state stored at the segment's start.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers


class Minibatch(NamedTuple):
    """Holds B segments of L = bptt_horizon rows, on the policy's device."""

    obs: dict[str, Tensor]
    """{leaf: [L, B, *shape]} in the environment's dtype."""
    state: Tensor
    """[layers, B, size]: the core's state at the start, before a reset there."""
    reset: Tensor
    """[L, B] bool."""
    mask: Tensor
    """[L, B] bool: False rows are not learned from."""
    action: Tensor
    """[L, B, W]."""
    logprob: Tensor
    """[L, B] log-probabilities under the rollout's policy."""
    value: Tensor
    """[L, B] values of the rollout."""
    advantage: Tensor
    """[L, B], not normalised."""
    returns: Tensor
    """[L, B]."""
    weight: Tensor | None
    """[B]: multiplies the normalised advantages; None: 1."""
    action_mask: Tensor | None = None
    """[L, B, P] bool: False forbids the choice; None: every choice is legal."""
    rows: Tensor | None = None
    """[L · B] int64 on the buffers' device: row numbers t · num_agents + n, for a feature with arrays of its own."""


class Gather:
    """Gathers minibatches from views of the buffers as lists of rows."""

    def __init__(self, buffers: Buffers, device: torch.device, *, kernel: bool = False) -> None:
        """kernel: gather bytes with gather_rows.py; torch and its compiler read them one at a time."""
        self.buffers, self.device = buffers, device
        self.rollout_value = buffers.value
        """[T+1, N]: the rollout's values; a separate tensor if the update writes buffers.value."""
        self._time = (
            torch.arange(buffers.bptt_horizon, device=buffers.device).unsqueeze(1) * buffers.num_agents
        )
        self._picks_bytes: ModuleType | None = None
        """The module gather_rows.py, or None without the kernel."""
        if kernel:
            from metta_fast.algorithms.ppo.triton import gather_rows

            self._picks_bytes = gather_rows

    def rows(self, segments: Tensor) -> Tensor:
        """Returns the row numbers t · num_agents + n of segments [B], [L · B] time-major."""
        b = self.buffers
        segment, agent = segments // b.num_agents, segments % b.num_agents
        return (self._time + (segment * (b.bptt_horizon * b.num_agents) + agent)).flatten()

    def minibatch(self, segments: Tensor, rows: Tensor, weight: Tensor | None = None) -> Minibatch:
        """Returns the minibatch of `segments` [B], whose `rows` are given."""
        b = self.buffers
        shape = (b.bptt_horizon, len(segments))

        def take(array: Tensor) -> Tensor:
            """Gathers array [T or T+1, N, …] into [L, B, …]."""
            flat = array.flatten(0, 1)
            if self._picks_bytes is not None and self._picks_bytes.fits(flat, rows):
                picked = self._picks_bytes.gather_rows_op(flat, rows)
            else:
                picked = flat.index_select(0, rows)
            return picked.unflatten(0, shape).to(self.device, non_blocking=True)

        return Minibatch(
            {name: take(leaf) for name, leaf in b.obs.items()},
            self.state(segments),
            take(b.reset),
            take(b.mask),
            take(b.action),
            take(b.logprob),
            take(self.rollout_value),
            take(b.advantage),
            take(b.returns),
            None if weight is None else weight.to(self.device),
            None if b.action_mask is None else take(b.action_mask),
            rows,
        )

    def state(self, segments: Tensor) -> Tensor:
        """Returns `Minibatch.state` of segments [B]."""
        return self.buffers.state_at(segments).to(self.device)

    def reset(self, segments: Tensor) -> Tensor:
        """Returns `Minibatch.reset` of segments [B] without gathering the other arrays."""
        b = self.buffers
        whole = b.reset[: b.horizon].unflatten(0, (-1, b.bptt_horizon))
        return whole[segments // b.num_agents, :, segments % b.num_agents].t().to(self.device)

    def put(self, array: Tensor, rows: Tensor, values: Tensor) -> None:
        """Writes values [L, B] back to the rows of array [T or T+1, N]."""
        array.flatten(0, 1).index_copy_(0, rows, values.flatten().to(array.device, array.dtype))
