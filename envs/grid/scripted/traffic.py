"""Walks for the scripted agent: shortest paths, blocks swapped out of the way, and agents that meet.

`Traffic` is one env's picture of who is where. Agents that stand in each other's way walk around; where
that is not possible one of them steps aside, those behind it first if need be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.envs.grid.names import ACTIONS, TYPES
from metta_fast.envs.grid.scripted.paths import MOVE_BACKWARD, MOVE_FORWARD, NOOP, SWAP, Action, Paths

Views = Mapping[str, Array]
BLOCK = TYPES.index("block")
JAM, LEAD = 6, 25
"""Steps of standing still after which there is a jam; steps for which one agent then leads."""


@dataclass
class Walker:
    """One agent on its way: `target` is the number of a thing to face (-1: none)."""

    target: int = -1
    detour: list[Action] = field(default_factory=list)
    """Actions that come before all else: a way around others, or out of their way."""
    blocked: int = 0
    """Steps for which somebody has stood in the way."""


class Traffic:
    """Knows the place of everything (`look` updates it) and finds each agent's next step.

    Args:
        record: the env's GRID_CONFIG record.
        views: the env's state by name at the start of an episode.
        targets: numbers of the objects that agents may go to.
        walkers: one for each agent.
    """

    def __init__(self, record: Array, views: Views, targets: list[int], walkers: Sequence[Walker]) -> None:
        first_object = 2 + int(record["num_agents"])
        kinds = views["object_type"]
        self.block_objects = np.flatnonzero(kinds == BLOCK)
        self.can_swap = bool(int(record["actions_enabled"]) >> ACTIONS.index("swap") & 1)
        cell = views["cell"]
        floor = (cell == 0) | ((cell >= 2) & (cell < first_object))
        if self.can_swap:
            floor[views["object_row"][self.block_objects], views["object_col"][self.block_objects]] = True
        rows, cols = views["object_row"][targets].tolist(), views["object_col"][targets].tolist()
        self.paths = Paths(floor, list(zip(rows, cols)))
        self.walkers = walkers
        self.clock = 0
        self.leader, self.leads_until = -1, 0
        """In a jam one agent leads for a while: all others make way for it alone (-1: no jam)."""
        self.look(views)

    def look(self, views: Views) -> None:
        """Take in where agents and blocks are now."""
        self.clock += 1
        width = self.paths.width
        rows, cols = views["agent_row"].tolist(), views["agent_col"].tolist()
        self.at = [(row + 1) * width + col + 1 for row, col in zip(rows, cols)]
        self.facing: list[int] = views["agent_orientation"].tolist()
        self.who = {cell: agent for agent, cell in enumerate(self.at)}
        self.blocks: set[int] = set()
        if self.can_swap:
            rows = views["object_row"][self.block_objects].tolist()
            cols = views["object_col"][self.block_objects].tolist()
            self.blocks = {(row + 1) * width + col + 1 for row, col in zip(rows, cols)}

    def place(self, agent: int) -> int:
        return self.facing[agent] * self.paths.area + self.at[agent]

    def distance(self, agent: int, target: int) -> int:
        """Steps until the agent faces the target; 0 where it does."""
        return self.paths.fields[target][self.place(agent)]

    def detour(self, agent: int) -> Action | None:
        """The next action of the agent's detour, None if it has none that still leads somewhere."""
        walker = self.walkers[agent]
        if not walker.detour:
            return None
        action = walker.detour.pop(0)
        step = self.paths.steps[self.facing[agent]]
        there = self.at[agent] + (-step if action == MOVE_BACKWARD else step)
        moves = action in (MOVE_FORWARD, MOVE_BACKWARD)
        stuck = moves and (there in self.who or there in self.blocks)
        if stuck or (action == SWAP and there not in self.blocks):
            walker.detour.clear()
            return None
        return action

    def go(self, agent: int) -> Action:
        """One step nearer to facing the agent's target."""
        walker, place, at = self.walkers[agent], self.place(agent), self.at[agent]
        area, steps, field = self.paths.area, self.paths.steps, self.paths.fields[walker.target]
        nearer, step = field[place] - 1, steps[self.facing[agent]]
        if field[place + step] == nearer and at + step not in self.who:
            walker.blocked = 0
            return SWAP if at + step in self.blocks else MOVE_FORWARD
        if field[place - step] == nearer and at - step not in self.who and at - step not in self.blocks:
            walker.blocked = 0
            return MOVE_BACKWARD
        for turn in range(4):
            if field[turn * area + at] == nearer and at + steps[turn] not in self.who:
                return (2, turn)
        return self.pass_others(agent)

    def pass_others(self, agent: int) -> Action:
        """Walks around an agent that blocks the shortest way, or one of the two steps aside."""
        walker, place, at = self.walkers[agent], self.place(agent), self.at[agent]
        facing, field = self.facing[agent], self.paths.fields[walker.target]
        walker.blocked += 1
        course, cells = self.course(agent), [at + step for step in self.paths.steps]
        near = [self.who[cell] for cell in cells if cell in course and cell in self.who]
        # Of two that meet, the higher number stands still at first: both would walk around to the same side.
        stands = walker.blocked % 4 and any(other < agent and at in self.course(other) for other in near)
        if stands:
            return self.press_on(place, walker.target)
        limit = field[place] + min(2 + 2 * walker.blocked, 10)
        way = self.paths.around(at, facing, walker.target, set(self.who) - {at}, self.blocks, limit)
        if way:
            walker.detour = way
            return walker.detour.pop(0)
        if self.clock > self.leads_until and walker.blocked >= JAM and agent != self.leader:
            self.leader, self.leads_until = agent, self.clock + LEAD
        if walker.blocked >= 2 and (self.clock > self.leads_until or agent == self.leader):
            made = any(self.make_room(agent, other) for other in near)
            if near and not made and agent == self.leader:
                self.leader, self.leads_until = near[0], self.clock + LEAD  # who has no room goes first
            if walker.detour:
                return walker.detour.pop(0)
        return self.press_on(place, walker.target)

    def press_on(self, place: int, target: int) -> Action:
        """The shortest way's next action all the same: the other may be gone by then."""
        field, area = self.paths.fields[target], self.paths.area
        facing, at = divmod(place, area)
        step = self.paths.steps[facing]
        onward = [(place + step, MOVE_FORWARD), (place - step, MOVE_BACKWARD)]
        onward += [(turn * area + at, (2, turn)) for turn in range(4)]
        return next(action for there, action in onward if field[there] < field[place])

    def make_room(self, agent: int, other: int) -> bool:
        """Agent and other face off: who only waits steps aside, else the higher number."""
        target = self.walkers[other].target
        going = target >= 0 and self.distance(other, target) > 0
        pairs = [(other, agent), (agent, other)]
        if going and other < agent:
            pairs.reverse()
        return any(self.step_aside(goes, stays, self.course(stays)) for goes, stays in pairs)

    def course(self, agent: int) -> set[int]:
        """The cells that an agent is on its way through."""
        target = self.walkers[agent].target
        if target < 0:
            return {self.at[agent]}
        return self.paths.course(self.at[agent], self.facing[agent], target)

    def step_aside(self, agent: int, passer: int, course: set[int], depth: int = 3) -> bool:
        """Have an agent leave another's course and wait there a little; those in its way first."""
        walker, at = self.walkers[agent], self.at[agent]
        led = self.clock <= self.leads_until
        if led and agent == self.leader:
            return False
        if walker.detour and not led:
            return True
        taken, facing = set(self.who) - {at}, self.facing[agent]
        way = self.paths.aside(at, facing, taken, self.blocks, course)
        if way is not None:
            walker.detour = [*(action for action, _ in way), NOOP, NOOP, NOOP]
            return True
        way = self.paths.aside(at, facing, {self.at[passer]}, self.blocks, course) if depth else None
        cells = {cell for _, cell in way or ()}
        in_the_way = [self.who[cell] for cell in cells - {at} if cell in self.who]
        asked = [self.step_aside(other, agent, course | cells, depth - 1) for other in in_the_way]
        return any(asked)
