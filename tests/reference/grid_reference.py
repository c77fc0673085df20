"""Implements the grid's rules in plain Python; envs/grid/grid_rules.h must equal it in every byte.

One function per rule; everything is Python integers and lists. The attributes of `GridReference` carry the
same names as `state_views` of the native state. Where the rules left room, a docstring gives the reading.

    env = GridReference(record, table, seed=7, env_id=0); env.reset(); env.step(actions)
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from tests.reference.grid_maps_reference import build_map
from tests.reference.philox import STREAM_MAP, STREAM_ORDER, Random

NUM_ITEMS, NUM_TYPES = 10, 15
ORES, BATTERIES = (0, 1, 2), (3, 4, 5)
HEART, ARMOR, LASER = 6, 7, 8
NOOP, MOVE, ROTATE, PUT, GET, ATTACK, SWAP, COLOR, GLYPH = range(9)
WALL, BLOCK = 1, 14
IDLE, CONVERTING, COOLING = range(3)
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))  # (row, column) of one step up, down, left, right
HEARTS, ORE_GOT, BATTERY_GOT, ITEMS_PUT, HITS, STOLEN, MOVES, FAILED = range(8)
CONVERTER_LIMIT = 255

OBJECT_ARRAYS = ("object_type", "object_row", "object_col", "object_phase", "object_due", "object_item")
AGENT_ARRAYS = (
    "agent_row", "agent_col", "agent_orientation", "agent_group", "agent_frozen", "agent_color",
    "agent_glyph", "agent_last_action", "agent_last_arg", "agent_item", "agent_reward", "agent_stat",
)  # fmt: skip
SCALARS = ("step", "lifetime", "episode", "pending_reset", "num_objects")
STATE_NAMES = (*SCALARS, "cell", *OBJECT_ARRAYS, *AGENT_ARRAYS, "order")


def read_config(record) -> SimpleNamespace:
    """The GRID_CONFIG record as plain Python numbers and lists."""
    return SimpleNamespace(**{name: record[name].tolist() for name in record.dtype.names})


class GridReference:
    """One environment."""

    def __init__(self, record, table: np.ndarray | None = None, *, seed: int, env_id: int = 0) -> None:
        self.config = read_config(record)
        self.table = b"" if table is None else np.asarray(table, dtype=np.uint8).tobytes()
        self.seed, self.env_id = seed, env_id
        self.lifetime, self.episode, self.pending_reset = 0, -1, 0
        self.is_converter = [any(outputs) for outputs in self.config.recipe_out]

    # ---- episodes ---------------------------------------------------------------------------------------

    def reset(self, start_step: int = 0) -> None:
        """A new map; everything zero; converters start with their `initial` output; `order` is all zero
        until the first step."""
        config = self.config
        self.lifetime += 1
        self.episode += 1
        self.pending_reset = 0
        self.step_count = start_step
        grid = build_map(config, self.table, Random(self.seed, self.env_id, self.episode, STREAM_MAP))
        agents, capacity = config.num_agents, config.max_objects
        self.cell = [[int((r, c) in grid.walls) for c in range(config.width)] for r in range(config.height)]

        self.agent_row = [row for row, _, _ in grid.agents]
        self.agent_col = [col for _, col, _ in grid.agents]
        self.agent_group = [room if config.group_by_room else 0 for _, _, room in grid.agents]
        for name in ("orientation", "frozen", "color", "glyph", "last_action", "last_arg", "reward"):
            setattr(self, f"agent_{name}", [0] * agents)
        self.agent_item = [[0] * NUM_ITEMS for _ in range(agents)]
        self.agent_stat = [[0] * 8 for _ in range(agents)]
        self.order = [0] * agents
        for agent, (row, col, _) in enumerate(grid.agents):
            self.cell[row][col] = 2 + agent

        self.num_objects = len(grid.objects)
        for name in ("type", "row", "col", "phase", "due"):
            setattr(self, f"object_{name}", [0] * capacity)
        self.object_item = [[0] * NUM_ITEMS for _ in range(capacity)]
        for j, (kind, row, col) in enumerate(grid.objects):
            self.object_type[j], self.object_row[j], self.object_col[j] = kind, row, col
            self.cell[row][col] = 2 + agents + j
        for j in range(self.num_objects):
            if self.is_converter[self.object_type[j]]:
                for item in range(NUM_ITEMS):
                    if self.recipe_out(j)[item] > 0:
                        self.object_item[j][item] = min(config.initial[self.object_type[j]], CONVERTER_LIMIT)
                self.try_start(j)

        self.rewards = np.zeros(agents, np.float32)
        self.terminals = np.zeros(agents, bool)
        self.truncations = np.zeros(agents, bool)

    def step(self, actions) -> None:
        """One step, or (when the last one ended the episode) a reset that ignores the actions."""
        if self.pending_reset:
            self.reset()
            return
        actions = [[int(value) for value in row] for row in actions]
        self.begin()
        for attack_pass in (True, False):
            for agent in self.order:
                kind, argument = actions[agent]
                if (kind == ATTACK) == attack_pass:
                    self.turn(agent, kind, argument)
        self.finish()

    def begin(self) -> None:
        """Clear rewards, count the step, fire due events, draw the order."""
        self.agent_reward = [0] * self.config.num_agents
        self.lifetime += 1
        self.step_count += 1
        for j in range(self.num_objects):
            self.converter_event(j)
        self.order = list(range(self.config.num_agents))
        Random(self.seed, self.env_id, self.lifetime, STREAM_ORDER).shuffle(self.order)

    def finish(self) -> None:
        """Ends of episodes; rewards as floats, shared within each group."""
        ended = self.step_count >= self.config.max_steps
        self.pending_reset = int(ended)
        self.terminals[:] = ended and bool(self.config.limit_is_terminal)
        self.truncations[:] = ended and not self.config.limit_is_terminal
        own = [np.float32(thousandths) * np.float32(0.001) for thousandths in self.agent_reward]
        share = np.float32(self.config.group_reward_pct)
        for agent, group in enumerate(self.agent_group):
            total, members = np.float32(0), 0
            for other, other_group in enumerate(self.agent_group):
                if other_group == group:
                    total, members = total + own[other], members + 1
            mean = total / np.float32(members)
            self.rewards[agent] = own[agent] * (np.float32(1) - share) + share * mean

    # ---- converters -------------------------------------------------------------------------------------

    def recipe_in(self, j: int) -> list[int]:
        return self.config.recipe_in[self.object_type[j]]

    def recipe_out(self, j: int) -> list[int]:
        return self.config.recipe_out[self.object_type[j]]

    def total_output(self, j: int) -> int:
        """All it holds of the items that its recipe gives (for a temple that is hearts put in as well)."""
        return sum(self.object_item[j][item] for item in range(NUM_ITEMS) if self.recipe_out(j)[item] > 0)

    def try_start(self, j: int) -> None:
        """The start test: idle, room for output, every input held. Inputs are taken at once."""
        held, needed, kind = self.object_item[j], self.recipe_in(j), self.object_type[j]
        if self.object_phase[j] != IDLE or self.total_output(j) >= self.config.max_output[kind]:
            return
        if any(held[item] < needed[item] for item in range(NUM_ITEMS)):
            return
        for item in range(NUM_ITEMS):
            held[item] -= needed[item]
        self.object_phase[j] = CONVERTING
        self.object_due[j] = self.step_count + self.config.conversion_ticks[kind]

    def converter_event(self, j: int) -> None:
        """Outputs when a conversion is due, the cool-down (none if it is 0), then the start test again."""
        if self.object_phase[j] == IDLE or self.object_due[j] != self.step_count:
            return
        if self.object_phase[j] == CONVERTING:
            for item in range(NUM_ITEMS):
                total = self.object_item[j][item] + self.recipe_out(j)[item]
                self.object_item[j][item] = min(total, CONVERTER_LIMIT)
            cooldown = self.config.cooldown[self.object_type[j]]
            if cooldown > 0:
                self.object_phase[j], self.object_due[j] = COOLING, self.step_count + cooldown
                return
        self.object_phase[j], self.object_due[j] = IDLE, 0
        self.try_start(j)

    # ---- turns ------------------------------------------------------------------------------------------

    def turn(self, agent: int, kind: int, argument: int) -> None:
        """One agent's turn. The pass is chosen by the action's id alone: an attack with an argument out of
        range, or while attacks are disabled, fails in the attack pass."""
        self.agent_last_action[agent] = min(max(kind, 0), 255)
        self.agent_last_arg[agent] = min(max(argument, 0), 255)
        if self.agent_frozen[agent] > 0:
            self.agent_frozen[agent] -= 1
            done = False
        elif not 0 <= kind <= GLYPH or not (self.config.actions_enabled >> kind) & 1:
            done = False
        else:
            names = ("noop", "move", "rotate", "put", "get", "attack", "swap", "color", "glyph")
            done = getattr(self, names[kind])(agent, argument)
        if not done:
            self.agent_stat[agent][FAILED] += 1

    def noop(self, agent: int, argument: int) -> bool:
        return True

    def move(self, agent: int, argument: int) -> bool:
        """0 forward, 1 backward (the orientation stays); the cell must be empty."""
        if argument not in (0, 1):
            return False
        row, col = self.ahead(agent, 1 if argument == 0 else -1)
        if not self.on_map(row, col) or self.cell[row][col] != 0:
            return False
        self.put_agent(agent, row, col, leave=0)
        self.agent_stat[agent][MOVES] += 1
        return True

    def rotate(self, agent: int, argument: int) -> bool:
        if argument not in (0, 1, 2, 3):
            return False
        self.agent_orientation[agent] = argument
        return True

    def put(self, agent: int, argument: int) -> bool:
        """Of each input: the recipe's amount, or what is held, or what still fits."""
        j = self.faced_converter(agent)
        if j is None:
            return False
        moved = 0
        for item in range(NUM_ITEMS):
            room = CONVERTER_LIMIT - self.object_item[j][item]
            amount = min(self.recipe_in(j)[item], self.agent_item[agent][item], room)
            self.change_item(agent, item, -amount)
            self.object_item[j][item] += amount
            moved += amount
            self.agent_stat[agent][ITEMS_PUT] += amount
            if item == HEART:
                self.agent_stat[agent][HEARTS] -= amount
        if moved == 0:
            return False
        self.try_start(j)
        return True

    def get(self, agent: int, argument: int) -> bool:
        """Of each output: all that the agent can still carry."""
        j = self.faced_converter(agent)
        if j is None:
            return False
        moved = 0
        for item in range(NUM_ITEMS):
            if self.recipe_out(j)[item] == 0:
                continue
            amount = min(self.object_item[j][item], self.room_for(agent, item))
            self.object_item[j][item] -= amount
            self.change_item(agent, item, amount)
            moved += amount
            for items, stat in (((HEART,), HEARTS), (ORES, ORE_GOT), (BATTERIES, BATTERY_GOT)):
                if item in items:
                    self.agent_stat[agent][stat] += amount
        if moved == 0:
            return False
        self.try_start(j)
        return True

    def attack(self, agent: int, argument: int) -> bool:
        """The argument-th agent (or the last) of those in the 3×3 cells ahead; costs a laser."""
        if not 0 <= argument <= 8 or self.agent_item[agent][LASER] == 0:
            return False
        found = self.targets(agent)
        if not found:
            return False
        target = found[min(argument, len(found) - 1)]
        if self.agent_item[target][ARMOR] > 0:
            self.change_item(target, ARMOR, -1)
        else:
            if self.agent_frozen[target] == 0:
                self.rob(agent, target)
            self.agent_frozen[target] = self.config.freeze_duration
        self.change_item(agent, LASER, -1)
        self.agent_stat[agent][HITS] += 1
        return True

    def targets(self, agent: int) -> list[int]:
        """Agents in the cells at distance 1 to 3 ahead; at each, centre, left, right of facing."""
        facing_row, facing_col = STEPS[self.agent_orientation[agent]]
        right_row, right_col = facing_col, -facing_row
        found = []
        for distance in (1, 2, 3):
            for side in (0, -1, 1):
                row = self.agent_row[agent] + distance * facing_row + side * right_row
                col = self.agent_col[agent] + distance * facing_col + side * right_col
                if self.on_map(row, col) and (other := self.agent_at(row, col)) is not None:
                    found.append(other)
        return found

    def rob(self, thief: int, victim: int) -> None:
        """Everything that the thief can still carry."""
        for item in range(NUM_ITEMS):
            amount = min(self.agent_item[victim][item], self.room_for(thief, item))
            self.change_item(victim, item, -amount)
            self.change_item(thief, item, amount)
            self.agent_stat[thief][STOLEN] += amount

    def swap(self, agent: int, argument: int) -> bool:
        """Change places with a frozen agent or a block ahead; each keeps its orientation and timers."""
        row, col = self.ahead(agent, 1)
        if not self.on_map(row, col):
            return False
        old_row, old_col = self.agent_row[agent], self.agent_col[agent]
        other, j = self.agent_at(row, col), self.object_at(row, col)
        if other is not None and self.agent_frozen[other] > 0:
            self.agent_row[other], self.agent_col[other] = old_row, old_col
        elif j is not None and self.object_type[j] == BLOCK:
            self.object_row[j], self.object_col[j] = old_row, old_col
        else:
            return False
        self.put_agent(agent, row, col, leave=self.cell[row][col])
        return True

    def color(self, agent: int, argument: int) -> bool:
        if not 0 <= argument <= 8:
            return False
        self.agent_color[agent] = argument
        return True

    def glyph(self, agent: int, argument: int) -> bool:
        if not 0 <= argument <= 8:
            return False
        self.agent_glyph[agent] = argument
        return True

    # ---- small helpers ----------------------------------------------------------------------------------

    def on_map(self, row: int, col: int) -> bool:
        return 0 <= row < self.config.height and 0 <= col < self.config.width

    def ahead(self, agent: int, distance: int) -> tuple[int, int]:
        row_step, col_step = STEPS[self.agent_orientation[agent]]
        return self.agent_row[agent] + distance * row_step, self.agent_col[agent] + distance * col_step

    def agent_at(self, row: int, col: int) -> int | None:
        value = self.cell[row][col]
        return value - 2 if 2 <= value < 2 + self.config.num_agents else None

    def object_at(self, row: int, col: int) -> int | None:
        value = self.cell[row][col]
        return value - 2 - self.config.num_agents if value >= 2 + self.config.num_agents else None

    def faced_converter(self, agent: int) -> int | None:
        row, col = self.ahead(agent, 1)
        j = self.object_at(row, col) if self.on_map(row, col) else None
        return j if j is not None and self.is_converter[self.object_type[j]] else None

    def put_agent(self, agent: int, row: int, col: int, leave: int) -> None:
        """Move an agent to a cell; its old cell gets the value `leave`."""
        self.cell[self.agent_row[agent]][self.agent_col[agent]] = leave
        self.cell[row][col] = 2 + agent
        self.agent_row[agent], self.agent_col[agent] = row, col

    def room_for(self, agent: int, item: int) -> int:
        return max(0, self.config.item_cap[item] - self.agent_item[agent][item])

    def item_value(self, item: int, count: int) -> int:
        """Thousandths of reward that holding `count` of an item is worth."""
        return min(self.config.reward_weight[item] * count, self.config.reward_cap[item])

    def change_item(self, agent: int, item: int, change: int) -> None:
        """Give (or take) items; the reward is the change of their value, both ways."""
        before = self.agent_item[agent][item]
        self.agent_item[agent][item] = before + change
        self.agent_reward[agent] += self.item_value(item, before + change) - self.item_value(item, before)

    # ---- for the tests ----------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """All state by name, as int64 arrays (copies)."""
        values = {name: getattr(self, name) for name in STATE_NAMES if name != "step"}
        values["step"] = self.step_count
        values["object_item"] = np.reshape(self.object_item, (-1, NUM_ITEMS))  # also where there is no object
        return {name: np.array(value, dtype=np.int64) for name, value in values.items()}
