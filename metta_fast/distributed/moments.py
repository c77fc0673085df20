"""Merges running moments (count, mean, sum of squared deviations) with those of all processes' new rows.

Each process's new moments are written as sums about the running mean, which every process has alike: those add up over
processes (Chan et al. 1979). In float64 the differences lose nothing that matters.
"""

from __future__ import annotations

import torch
from torch import Tensor

from metta_fast.distributed.group import Group

Moments = tuple[Tensor, Tensor, Tensor]
"""count [], mean [F] or [], sum of squared deviations [F] or []: float64."""


def over_processes(new: Moments, about: Tensor, group: Group) -> Moments:
    """Returns the moments of all processes' rows together.

    Args:
        new: of this process's rows.
        about: [F] or [], the same on every process, best near the mean.
    """
    if group.world == 1:
        return new
    count, mean, squares = new
    apart = mean - about
    sums = torch.cat(
        [count.double().view(1), (count * apart).flatten(), (squares + count * apart.square()).flatten()]
    )
    group.sum_(sums)
    width = mean.numel()
    total = sums[0].clamp(min=1)
    first, second = sums[1 : 1 + width].view_as(mean), sums[1 + width :].view_as(mean)
    shift = first / total
    return sums[0], about + shift, (second - first * shift).clamp(min=0)


def merged(running: Moments, new: Moments) -> Moments:
    """Returns the moments of the rows of both."""
    count, mean, squares = running
    more, new_mean, new_squares = new
    total = (count + more).clamp(min=1)
    delta = new_mean - mean
    return (
        count + more,
        mean + delta * more / total,
        squares + new_squares + delta.square() * count * more / total,
    )
