"""Finds shortest paths on one map, for the scripted agent; a turn costs a step, like a move.

A place is `orientation * area + cell`, cells numbered row by row on the map with a line of wall put around.
"""

from __future__ import annotations

from array import array
from collections import deque

import numpy as np

from metta_fast.contracts.env import Array

FAR = 1 << 20
"""The distance of what cannot be reached."""
Action = tuple[int, int]
NOOP, MOVE_FORWARD, MOVE_BACKWARD, SWAP = (0, 0), (1, 0), (1, 1), (6, 0)


class Paths:
    """Distances from every place to each target, and ways around things that stand in the way.

    Args:
        floor: bool [H, W]: cells that an agent can ever stand on, blocks included where they can be swapped.
        targets: (row, column) of things to face; agents never stand on them.
    """

    def __init__(self, floor: Array, targets: list[tuple[int, int]]) -> None:
        height, width = floor.shape
        self.width = width + 2
        self.area = (height + 2) * self.width
        self.steps = (-self.width, self.width, -1, 1)
        self.cells = [(row + 1) * self.width + col + 1 for row, col in targets]
        padded = np.zeros((height + 2, self.width), bool)
        padded[1:-1, 1:-1] = floor
        self.floor = padded.ravel().tolist()
        self.fields = [array("i", distances.tobytes()) for distances in self._distances(padded.ravel())]
        """For each target: steps to a place that faces it, by place (FAR: never)."""

    def _distances(self, floor: Array) -> Array:
        """int32 [targets, 4 * area], all targets at once, one ring of places after the other."""
        area, steps = self.area, np.array(self.steps)
        distance = np.full(len(self.cells) * 4 * area, FAR, np.int32)
        ring = np.array([
            (4 * number + turn) * area + cell - step
            for number, cell in enumerate(self.cells)
            for turn, step in enumerate(self.steps)
            if floor[cell - step]
        ], np.int64)  # fmt: skip
        length = 0
        while ring.size:
            distance[ring] = length
            step = steps[ring // area % 4]
            turned = ring // (4 * area) * (4 * area) + ring % area
            reached = np.concatenate([ring + step, ring - step, *(turned + turn * area for turn in range(4))])
            ring = np.unique(reached[floor[reached % area] & (distance[reached] == FAR)])
            length += 1
        return distance.reshape(-1, 4 * area)

    def between(self, start: int, target: int) -> int:
        """Steps from the best place that faces target number `start` to one that faces number `target`."""
        cell, from_start, to_target = self.cells[start], self.fields[start], self.fields[target]
        places = [orientation * self.area + cell - step for orientation, step in enumerate(self.steps)]
        return min((to_target[place] for place in places if from_start[place] == 0), default=FAR)

    def course(self, cell: int, orientation: int, target: int) -> set[int]:
        """The cells of a shortest way to facing the target, the first one included."""
        field, place = self.fields[target], orientation * self.area + cell
        cells = {cell}
        while 0 < field[place] < FAR:
            facing, here = divmod(place, self.area)
            onward = [place + self.steps[facing], place - self.steps[facing]]
            onward += [turn * self.area + here for turn in range(4)]
            place = next(other for other in onward if field[other] == field[place] - 1)
            cells.add(place % self.area)
        return cells

    def around(
        self, cell: int, orientation: int, target: int, taken: set[int], blocks: set[int], limit: int
    ) -> list[Action] | None:
        """Actions that lead past the cells taken to facing a target in about `limit` steps, or None."""
        field = self.fields[target]
        start = orientation * self.area + cell
        came: dict[int, tuple[int, Action]] = {start: (start, NOOP)}
        queue = deque([(start, 0)])
        while queue:
            place, length = queue.popleft()
            if field[place] == 0:
                return [action for action, _ in self._way(came, place)]
            if length + field[place] > limit:
                continue
            for other, action in self._onward(place, taken, blocks):
                if other not in came:
                    came[other] = (place, action)
                    queue.append((other, length + 1))
        return None

    def aside(
        self, cell: int, orientation: int, taken: set[int], blocks: set[int], avoid: set[int]
    ) -> list[tuple[Action, int]] | None:
        """(action, cell after it) to the nearest cell out of `avoid` past the cells taken, or None."""
        start = orientation * self.area + cell
        came: dict[int, tuple[int, Action]] = {start: (start, NOOP)}
        queue = deque([start])
        while queue:
            place = queue.popleft()
            if place % self.area not in avoid:
                return self._way(came, place)
            for other, action in self._onward(place, taken, blocks):
                if other not in came:
                    came[other] = (place, action)
                    queue.append(other)
        return None

    def _onward(self, place: int, taken: set[int], blocks: set[int]) -> list[tuple[int, Action]]:
        """(place, action that leads there): turns; moves to floor not taken (blocks: by swap, ahead only)."""
        facing, here = divmod(place, self.area)
        step = self.steps[facing]
        onward = [(turn * self.area + here, (2, turn)) for turn in range(4)]
        if self.floor[here + step] and here + step not in taken:
            onward.append((place + step, SWAP if here + step in blocks else MOVE_FORWARD))
        if self.floor[here - step] and here - step not in taken and here - step not in blocks:
            onward.append((place - step, MOVE_BACKWARD))
        return onward

    def _way(self, came: dict[int, tuple[int, Action]], place: int) -> list[tuple[Action, int]]:
        """The (action, cell after it) that led to a place, from a search's record of where it came from."""
        way = []
        while came[place][0] != place:
            before, action = came[place]
            way.append((action, place % self.area))
            place = before
        return way[::-1]
