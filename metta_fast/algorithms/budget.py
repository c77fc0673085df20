"""Ends a run at exactly trainer.total_timesteps: shortens its last rollout and leaves out the steps beyond.

    rows_needed ─► a rollout that can be shortened stops after that many rows
    keep_steps  ─► of the rows collected, the first ones up to the budget are steps

Masked rows are not steps, and how many a rollout will have is unknown beforehand. So some more rows are collected than
are expected to be needed; if they are still too few, another short rollout follows.
"""

from __future__ import annotations

from math import ceil, sqrt

import torch

from metta_fast.buffers.rollout import Buffers
from metta_fast.distributed.group import ALONE, Group

LIVE = 0.9
"""Share of rows that are steps, as assumed of a run's first rollout."""


def rows_needed(remaining: int, agents: int, horizon: int, live: float) -> int | None:
    """Returns the rows of each agent that should hold `remaining` steps; None: a whole rollout.

    Args:
        remaining: agent steps up to the budget.
        live: share of rows that were steps so far, above 0.
    """
    if remaining <= 0 or remaining >= horizon * agents:
        return None
    rows = remaining / (agents * live)
    masked = rows * (1 - live)  # of each agent, on average; their number in all agents scatters by its root
    rows = ceil(rows + masked / 5 + 3 * sqrt(masked / agents)) + 1
    return rows if rows < horizon else None


def keep_steps(buffers: Buffers, remaining: int, group: Group = ALONE) -> None:
    """Masks all steps of the rollout but the first `remaining`, row by row, in place. Does not wait for the device.

    With several processes, the first `remaining` of the steps of all.

    For an agent that is cut off, the advantage ends there as at the end of a rollout: with the value of the next row.
    """
    mask = buffers.mask[: buffers.horizon]
    number = mask.flatten().cumsum(0).view_as(mask)
    if group.world > 1:  # rows of all processes side by side
        count = torch.zeros(len(mask), group.world, dtype=torch.int64, device=mask.device)
        count[:, group.rank] = own = mask.sum(1)
        before = group.sum_(count).flatten().cumsum(0).view_as(count)[:, group.rank] - own
        number = mask.cumsum(1) + before.unsqueeze(1)
    mask &= number <= remaining
