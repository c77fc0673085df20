"""Stacks frames plainly, row by row, as a reference for policy.frame_stack."""

from __future__ import annotations

from collections import deque

import numpy as np

from metta_fast.contracts.env import Array


class PlainStack:
    """The last K frames of each agent, zeros before its episode: of rows as they come, [n, *shape] each."""

    def __init__(self, count: int, agents: int) -> None:
        self.count = count
        self.seen: list[deque[Array]] = [deque(maxlen=count) for _ in range(agents)]

    def __call__(self, frames: Array, reset: Array) -> Array:
        """Returns [n, K, *shape], the oldest first. frames: [n, *shape]; reset: [n], this row begins an episode."""
        rows = []
        for own, frame, begins in zip(self.seen, frames, reset):
            if begins:
                own.clear()
            own.append(frame.copy())
            missing = [np.zeros_like(frame)] * (self.count - len(own))
            rows.append(np.stack([*missing, *own]))
        return np.stack(rows)


def stack_rows(count: int, frames: Array, reset: Array) -> Array:
    """Returns [T, n, K, *shape] of frames [T, n, *shape] from an episode's start on."""
    stack = PlainStack(count, frames.shape[1])
    return np.stack([stack(*row) for row in zip(frames, reset)])
