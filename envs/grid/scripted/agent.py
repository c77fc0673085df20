"""Plays the grid by rules: the score to beat. It sees the whole map and works the chain mine → generator → altar.

    agent = ScriptedAgent(record)
    actions = agent.act([sim.views])            # int32 [agents of all envs, 2], before each sim.step(actions)

An agent that is free weighs a visit to every mine, generator and altar: what the visit brings on (ores,
batteries, hearts; nothing for what others have reserved or what comes too late) over the steps it takes.
traffic.py walks it there. Frozen: a change here changes every published score. On the 256 maps of
`metta-fast eval` (seed 0) it gets 6.31 ± 0.01 hearts an agent in `grid` and 12.01 ± 0.01 in `grid_solo`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.envs.grid.scripted.chain import ALTAR, GENERATOR, HEART, MINE, Chain
from metta_fast.envs.grid.scripted.paths import FAR, NOOP, Action
from metta_fast.envs.grid.scripted.traffic import Traffic, Views, Walker

PUT, GET = (3, 0), (4, 0)
CONVERTING, COOLING = 1, 2
NEVER = 1 << 30
Option = tuple[float, int, int, int, int]
"""A visit that could be made: value, step of its last action, puts, items put, items got."""


@dataclass(frozen=True)
class Weights:
    """Weighs things for the planner, in ores got; found by trying on training seeds."""

    put: float = 3.0
    """Of an ore put into a generator that has none; less by `queue` for each that it has."""
    queue: float = 0.5
    battery: float = 1.2
    """Of a battery got."""
    heart: float = 4.0
    """Of batteries put that complete a heart; `part` of each battery that does not."""
    part: float = 0.3
    got: float = 2.0
    """Of a heart got."""
    overhead: float = 2.0
    """Steps added to each visit's length."""
    longest_queue: int = 4
    """Ores (in recipes' worth) that a generator is given in advance."""
    wait: int = 60
    """Longest wait for a further item, in steps."""
    replan: int = 6
    """Steps after which a plan is thought over."""


@dataclass
class Visit(Walker):
    """An agent's plan: go to `target`, put so often, then get so many."""

    puts: int = 0
    gets: int = 0
    brings: int = 0
    """Items that it will put, reserved at the target as `gets` are."""
    since: int = 0
    """The step at which this was decided."""


class ScriptedAgent:
    """Plays every agent of many envs and follows their episodes by itself.

    Args:
        record: the envs' GRID_CONFIG record.
        weights: for trials; the published scores are those of the default.

    Raises:
        UserError: the recipes hold no chain that it can work.
    """

    def __init__(self, record: Array, weights: Weights | None = None) -> None:
        self.record, self.chain, self.weights = record, Chain.of(record), weights or Weights()
        self.worlds: list[World] = []
        self.episodes: list[int] = []

    def act(self, views_of_env: Sequence[Views]) -> Array:
        """int32 [sum of agents, 2], env after env, from the same envs' state views at every call."""
        if len(self.worlds) != len(views_of_env):
            self.worlds = [World(self.record, self.chain, self.weights, views) for views in views_of_env]
            self.episodes = [int(views["episode"]) for views in views_of_env]
        actions: list[Action] = []
        for number, views in enumerate(views_of_env):
            if views["episode"] != self.episodes[number]:
                self.worlds[number] = World(self.record, self.chain, self.weights, views)
                self.episodes[number] = int(views["episode"])
            actions += self.worlds[number].act(views)
        return np.array(actions, np.int32)


class World:
    """Plans one env's episode. Converters of the chain are numbered k = 0, 1, …"""

    def __init__(self, record: Array, chain: Chain, weights: Weights, views: Views) -> None:
        self.weights, self.takes, self.items = weights, chain.takes, chain.items
        self.max_steps = int(record["max_steps"])
        self.caps = record["item_cap"].tolist()
        kinds = views["object_type"].tolist()
        self.objects = [j for j, kind in enumerate(kinds) if chain.stage_of_type[kind] >= 0]
        kinds = [kinds[j] for j in self.objects]
        self.stage = [chain.stage_of_type[kind] for kind in kinds]
        self.most = record["max_output"][kinds].tolist()
        self.ticks = record["conversion_ticks"][kinds].tolist()
        self.period = (record["conversion_ticks"] + record["cooldown"])[kinds].tolist()
        gives = record["recipe_out"][kinds].tolist()
        self.amount = [outputs[self.items[stage]] for outputs, stage in zip(gives, self.stage)]
        self.visits = [Visit() for _ in range(int(record["num_agents"]))]
        self.traffic = Traffic(record, views, self.objects, self.visits)
        self.coming = [0] * len(self.objects)
        """Input items that agents are on their way with."""
        self.reserved = [0] * len(self.objects)
        """Output items that agents are on their way to get."""
        self.generators = [k for k, stage in enumerate(self.stage) if stage == GENERATOR]
        self.tail = self.steps_to_heart()

    def steps_to_heart(self) -> list[int]:
        """For each converter: steps from getting its item to getting the heart, if nothing is in the way."""
        paths, numbers = self.traffic.paths, range(len(self.stage))
        tail = [0] * len(self.stage)
        for stage in (GENERATOR, MINE):
            for k in numbers:
                if self.stage[k] == stage:
                    onward = [other for other in numbers if self.stage[other] == stage + 1]
                    ways = [paths.between(k, other) + 1 + self.ticks[other] + tail[other] for other in onward]
                    tail[k] = min(ways, default=NEVER)
        return tail

    def act(self, views: Views) -> list[Action]:
        """Returns an action for each agent."""
        self.now = int(views["step"])
        if self.now >= self.max_steps:
            return [NOOP] * len(self.visits)  # the next call resets
        self.traffic.look(views)
        self.held = views["agent_item"].tolist()
        items = views["object_item"].tolist()
        phases, dues = views["object_phase"].tolist(), views["object_due"].tolist()
        self.phase, self.due = [phases[j] for j in self.objects], [dues[j] for j in self.objects]
        self.stock = [items[j][self.items[stage]] for j, stage in zip(self.objects, self.stage)]
        self.input = [
            items[j][self.items[stage - 1]] if stage > MINE else 0
            for j, stage in zip(self.objects, self.stage)
        ]  # fmt: skip
        return [self.choose(agent) for agent in range(len(self.visits))]

    def choose(self, agent: int) -> Action:
        """Detours first; then the visit: walk, put, get; a new plan when it is over or old."""
        action = self.traffic.detour(agent)
        if action is not None:
            return action
        for _ in range(2):
            visit = self.visits[agent]
            if visit.target < 0 or self.now - visit.since >= self.weights.replan:
                self.plan(agent)
            if visit.target < 0:
                return NOOP
            if self.traffic.distance(agent, visit.target) > 0:
                return self.traffic.go(agent)
            action = self.interact(agent, visit)
            if action is not None:
                return action
            self.release(visit)
        return NOOP

    def interact(self, agent: int, visit: Visit) -> Action | None:
        """The next action of a visit at its converter, None when it is over."""
        k, stage = visit.target, self.stage[visit.target]
        if visit.puts > 0 and (held := self.held[agent][self.items[stage - 1]]):
            brought = min(held, self.takes[stage], visit.brings)
            visit.puts -= 1
            visit.brings -= brought
            self.coming[k] -= brought
            return PUT
        if visit.gets > 0:
            wanted, there = 1 if stage == ALTAR else visit.gets, self.ready(k, self.now + 1)
            if there < wanted and self.when(k, wanted) - self.now <= self.weights.wait:
                return NOOP
            if there:
                self.reserved[k] -= visit.gets
                visit.gets = 0
                return GET
        return None

    # ---- what converters will do -----------------------------------------------------------------

    def schedule(self, k: int) -> tuple[int, int, int]:
        """(stock, when the next output comes, how many outputs will come without anybody's help)."""
        stock, stage = self.stock[k], self.stage[k]
        pending = max(0, -(-(self.most[k] - stock) // self.amount[k]))
        if stage != MINE:
            pending = min(pending, self.input[k] // self.takes[stage] + (self.phase[k] == CONVERTING))
        if self.phase[k] == CONVERTING:
            return stock, self.due[k], max(1, pending)
        if self.phase[k] == COOLING:
            return stock, self.due[k] + self.ticks[k], pending
        return stock, NEVER, 0

    def ready(self, k: int, step: int) -> int:
        """Output items there will be at a step, if nobody comes before."""
        stock, first, pending = self.schedule(k)
        if step < first:
            return stock
        return stock + self.amount[k] * min(pending, (step - first) // self.period[k] + 1)

    def when(self, k: int, count: int) -> int:
        """Returns the first step at which there are this many output items without anybody's help, or NEVER."""
        stock, first, pending = self.schedule(k)
        if count <= stock:
            return self.now + 1
        outputs = -(-(count - stock) // self.amount[k])
        return first + (outputs - 1) * self.period[k] if outputs <= pending else NEVER

    def queue(self, k: int) -> int:
        """Conversions that lie before a generator."""
        return (self.input[k] + self.coming[k]) // self.takes[GENERATOR] + (self.phase[k] == CONVERTING)

    def useful_ores(self, k: int, step: int) -> int:
        """How many ores got at mine k at a step can still become batteries in time."""
        slack = self.max_steps - step - self.tail[k]
        if slack < 0:
            return 0
        room = [1 + slack // self.period[g] - self.queue(g) for g in self.generators]
        return self.takes[GENERATOR] * sum(max(0, conversions) for conversions in room)

    # ---- planning --------------------------------------------------------------------------------

    def plan(self, agent: int) -> None:
        """Choose the visit that brings most a step, given what the others have reserved."""
        visit, held = self.visits[agent], self.held[agent]
        self.release(visit)
        place, best, best_score = self.traffic.place(agent), None, 0.0
        for k, field in enumerate(self.traffic.paths.fields):
            arrive = self.now + field[place] + 1
            if field[place] == FAR or arrive > self.max_steps:
                continue
            options = (self.mine_options, self.generator_options, self.altar_options)[self.stage[k]]
            for option in options(k, held, arrive):
                value, end = option[:2]
                score = value / (end - self.now + self.weights.overhead)
                if end <= self.max_steps and score > best_score:
                    best, best_score = (k, *option[2:]), score
        visit.since = self.now
        if best is not None:
            visit.target, visit.puts, visit.brings, visit.gets = best
            self.coming[visit.target] += visit.brings
            self.reserved[visit.target] += visit.gets

    def release(self, visit: Visit) -> None:
        """Forget a visit and what it had reserved."""
        if visit.target >= 0:
            self.coming[visit.target] -= visit.brings
            self.reserved[visit.target] -= visit.gets
        visit.target, visit.puts, visit.brings, visit.gets = -1, 0, 0, 0

    def mine_options(self, k: int, held: list[int], arrive: int) -> list[Option]:
        """Get what is there, or wait for one more."""
        found = self.gets(k, arrive, self.caps[self.items[MINE]] - held[self.items[MINE]])
        return [(float(min(gets, self.useful_ores(k, step))), step, 0, 0, gets) for gets, step in found]

    def generator_options(self, k: int, held: list[int], arrive: int) -> list[Option]:
        """Put ores, as the queue has room and while they can become hearts; get batteries."""
        w, takes, battery = self.weights, self.takes[GENERATOR], self.items[GENERATOR]
        queue, puts, value = self.queue(k), 0, 0.0
        slack = self.max_steps - arrive - 1 - self.tail[k]
        while puts < held[self.items[MINE]] // takes and queue + puts < w.longest_queue:
            if (queue + puts) * self.period[k] > slack:
                break
            value += w.put / (1 + w.queue * (queue + puts))
            puts += 1
        found = [(value, arrive + puts - 1, puts, puts * takes, 0)] if puts else []
        for gets, step in self.gets(k, arrive + puts, self.caps[battery] - held[battery]):
            if step + self.tail[k] <= self.max_steps:
                found.append((value + w.battery * gets, step, puts, puts * takes, gets))
        return found

    def altar_options(self, k: int, held: list[int], arrive: int) -> list[Option]:
        """Put all batteries and get the hearts that are there then."""
        w, takes, batteries = self.weights, self.takes[ALTAR], held[self.items[GENERATOR]]
        hearts = ((self.input[k] + self.coming[k]) % takes + batteries) // takes
        puts = -(-batteries // takes)
        value = w.heart * hearts if hearts else w.part * batteries
        ready = max(0, self.ready(k, arrive) - self.reserved[k])
        gets = min(ready + (hearts > 0), self.caps[HEART] - held[HEART])
        if puts + gets == 0:
            return []
        return [(value + w.got * gets, arrive + puts - 1 + (gets > 0), puts, batteries, gets)]

    def gets(self, k: int, step: int, room: int) -> list[tuple[int, int]]:
        """(items, step of the get): what is there on arrival, and one more after a wait."""
        ready = max(0, self.ready(k, step) - self.reserved[k])
        found = [(min(ready, room), step)] if ready and room > 0 else []
        later = self.when(k, ready + 1 + self.reserved[k])
        if ready < room and later - step <= self.weights.wait:
            found.append((ready + 1, max(later, step)))
        return found
