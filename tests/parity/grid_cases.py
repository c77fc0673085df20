"""Generates random configurations, maps and actions for the grid's differential tests.

`cases()` is a hypothesis strategy; `record(**changes)` is the classic game with changes; `Actor` makes
actions that are random but biased to do something where the agent stands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from metta_fast.envs.grid.names import GRID_CONFIG
from tests.reference import grid_reference as rules
from tests.reference.grid_maps_reference import ARENA, MAZE, ROOMS, TABLE

NO_CAP = 1 << 30
# type: ({item: amount taken}, {item: amount given}, cool-down): ore 0-2, battery 3-5, heart 6, armor 7, laser 8, blueprint 9
CLASSIC = {
    2: ({}, {0: 1}, 50), 3: ({}, {1: 1}, 50), 4: ({}, {2: 1}, 50),
    5: ({0: 1}, {3: 1}, 25), 6: ({1: 1}, {4: 1}, 25), 7: ({2: 1}, {5: 1}, 25),
    8: ({3: 3}, {6: 1}, 10),
    9: ({0: 3}, {7: 1}, 10),
    10: ({0: 1, 3: 2}, {8: 1}, 10),
    11: ({0: 3, 3: 3}, {9: 1}, 5),
    12: ({9: 1, 0: 5, 3: 5}, {7: 5, 8: 5}, 5),
    13: ({6: 1, 9: 1}, {6: 5}, 5),
}  # fmt: skip
INT32 = (-(1 << 31), (1 << 31) - 1)


@dataclass
class Case:
    """A configuration, its maps (uint8 [maps, height, width] if map_kind is TABLE), a seed, an env's id."""

    config: np.ndarray
    table: np.ndarray | None
    seed: int
    env_id: int

    def __repr__(self) -> str:
        fields = {name: self.config[name].tolist() for name in self.config.dtype.names}
        table = None if self.table is None else self.table.tolist()
        return f"Case(seed={self.seed}, env_id={self.env_id}, table={table}, {fields})"


def record(**changes) -> np.ndarray:
    """A GRID_CONFIG record (shape ()): the classic game in one 16×16 room; `count` may be {type: number}."""
    config = np.zeros((), GRID_CONFIG)
    config["num_agents"], config["max_steps"] = 4, 1000
    config["map_kind"], config["border"], config["rooms_y"], config["rooms_x"] = ARENA, 1, 1, 1
    config["room_height"] = config["room_width"] = 16
    for kind, (takes, gives, cooldown) in CLASSIC.items():
        config["cooldown"][kind] = cooldown
        for item, amount in takes.items():
            config["recipe_in"][kind][item] = amount
        for item, amount in gives.items():
            config["recipe_out"][kind][item] = amount
    config["conversion_ticks"], config["max_output"] = 1, 5
    config["item_cap"] = 50
    config["item_cap"][rules.HEART] = 255
    config["reward_weight"][rules.HEART] = 1000
    config["reward_cap"] = NO_CAP
    config["freeze_duration"] = 10
    config["actions_enabled"] = (1 << 9) - 1
    for name, value in changes.items():
        if isinstance(value, dict):
            for key, part in value.items():
                config[name][key] = part
        else:
            config[name] = value
    if "height" not in changes:
        config["height"], config["width"] = map_size(config)
    if "max_objects" not in changes:
        rooms = int(config["rooms_y"] * config["rooms_x"])
        config["max_objects"] = rooms * int(config["count"].sum() - config["count"][rules.WALL])
    return config


def map_size(config) -> tuple[int, int]:
    """(height, width) that the builder of this config needs."""
    sizes = []
    for rooms, cells in (("rooms_y", "room_height"), ("rooms_x", "room_width")):
        rooms, cells, border = int(config[rooms]), int(config[cells]), int(config["border"])
        kind = int(config["map_kind"])
        if kind == MAZE:
            sizes.append(2 * (border - 1) + 2 * cells + 1)
        else:
            sizes.append(2 * border + rooms * cells + (rooms - 1 if kind == ROOMS else 0))
    return sizes[0], sizes[1]


@st.composite
def cases(draw, observation: int | None = None) -> Case:
    """Small, crowded games of every kind of map."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="numpy seed"))
    kind = draw(st.sampled_from((TABLE, ARENA, ROOMS, MAZE)), label="map kind")
    agents = draw(st.one_of(st.integers(1, 6), st.integers(1, 30)), label="agents")
    changes: dict = {
        "map_kind": kind,
        "num_agents": agents,
        "max_steps": draw(st.one_of(st.integers(1, 5), st.integers(6, 40), st.just(1000)), label="max_steps"),
        "limit_is_terminal": int(rng.integers(2)),
        "group_by_room": int(rng.integers(2)),
        "border": int(rng.integers(1 if kind == MAZE else 0, 4)),
        "observation": int(rng.integers(3)) if observation is None else observation,
        "group_reward_pct": draw(st.sampled_from((0.0, 0.5, 1.0, 0.3)), label="sharing"),
        "freeze_duration": draw(st.sampled_from((10, 1, 0, 3)), label="freeze"),
        "actions_enabled": draw(
            st.sampled_from((511, 511, 511, 0b001111111, 0b110011110, 0)), label="actions"
        ),
    }
    changes |= recipes(draw(st.sampled_from(("classic", "quick", "wild")), label="recipes"), rng)
    changes |= limits(draw(st.sampled_from(("classic", "tight", "wide")), label="limits"), rng)
    table = None
    if kind == TABLE:
        changes, table = table_map(changes, agents, rng)
    else:
        changes |= rooms_and_counts(kind, agents, rng)
    seed = draw(st.integers(0, 2**64 - 1), label="seed")
    return Case(record(**changes), table, seed, int(rng.choice([0, 1, 77, 2**20])))


def recipes(style: str, rng: np.random.Generator) -> dict:
    """classic: as documented; quick: short times, stock at the start; wild: any recipe for any type."""
    if style == "classic":
        return {"initial": rng.integers(0, 3, 15) * rng.integers(2)}
    changes = {
        "cooldown": rng.integers(0, 4, 15),
        "conversion_ticks": rng.integers(1, 5, 15),
        "max_output": rng.integers(0, 9, 15),
        "initial": rng.choice([0, 1, 5, 255], 15),
    }
    if style == "wild":
        takes = rng.integers(0, 4, (15, 10)) * (rng.random((15, 10)) < 0.2)
        gives = rng.choice([1, 2, 5, 200], (15, 10)) * (rng.random((15, 10)) < 0.2)
        gives[np.arange(15), rng.integers(0, 10, 15)] = 1
        for nothing in (0, 1, 14):
            takes[nothing], gives[nothing] = 0, 0
        changes |= {"recipe_in": takes, "recipe_out": gives}
    return changes


def limits(style: str, rng: np.random.Generator) -> dict:
    """What an agent can hold and what that is worth."""
    if style == "classic":
        return {}
    worth = {
        "reward_weight": rng.choice([0, 0, 20, 50, 1000, 333, -100], 10),
        "reward_cap": rng.choice([NO_CAP, 60, 150, 1000], 10),
    }
    return worth | {"item_cap": rng.integers(0, 5, 10) if style == "tight" else np.full(10, 255)}


def rooms_and_counts(kind: int, agents: int, rng: np.random.Generator) -> dict:
    """Rooms just large enough, most of their cells filled."""
    rooms_y, rooms_x = (1, 1) if kind == MAZE else rng.integers(1, 4, 2)
    most_agents = -(-agents // int(rooms_y * rooms_x))
    if kind == MAZE:
        height, width = rng.integers(3, 9, 2)
        height = max(int(height), -(-(2 * agents + 4) // int(width)))  # floor enough besides the dead ends
        return {
            "room_height": height, "room_width": int(width), "rooms_y": 1, "rooms_x": 1,
            "count": rng.integers(0, 3, 15) * _not_agent(),
        }  # fmt: skip
    count = rng.integers(0, 4, 15) * (rng.random(15) < 0.5) * _not_agent()
    needed = most_agents + int(count.sum()) + 4 + int(rng.integers(0, 12))  # 4: what doors may keep empty
    width = int(rng.integers(2, 9))
    return {
        "room_height": -(-needed // width), "room_width": width,
        "rooms_y": int(rooms_y), "rooms_x": int(rooms_x), "count": count,
    }  # fmt: skip


def table_map(changes: dict, agents: int, rng: np.random.Generator) -> tuple[dict, np.ndarray]:
    """Up to three maps of random bytes, each with exactly the agents it needs; seldom walled in."""
    maps, width = int(rng.integers(1, 4)), int(rng.integers(1, 12))
    height = -(-(agents + int(rng.integers(0, 60))) // width)
    table = np.full((maps, height * width), 255, np.uint8)
    for grid in table:
        order = rng.permutation(height * width)
        grid[order[:agents]] = 0
        filled = order[agents : agents + int(rng.integers(0, len(order) - agents + 1))]
        grid[filled] = rng.integers(1, 15, len(filled))
    objects = max(int(((grid >= 2) & (grid <= 14)).sum()) for grid in table)
    changes = changes | {
        "num_maps": maps, "height": height, "width": width, "max_objects": objects, "border": 0,
        "rooms_y": 1, "rooms_x": 1, "room_height": height, "room_width": width,
    }  # fmt: skip
    return changes, table.reshape(maps, height, width)


def _not_agent() -> np.ndarray:
    mask = np.ones(15, np.int64)
    mask[0] = 0
    return mask


class Actor:
    """Actions [agents, 2] int32: some sensible for where the agent stands, some uniform, some wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def act(self, env: rules.GridReference) -> np.ndarray:
        chosen = [self.choose(env, agent) for agent in range(env.config.num_agents)]
        return np.array(chosen, dtype=np.int32).reshape(-1, 2)

    def choose(self, env: rules.GridReference, agent: int) -> tuple[int, int]:
        rng = self.rng
        roll = rng.random()
        if roll < 0.05:
            return int(rng.choice([-1, 9, 10, 255, 256, *INT32])), int(rng.integers(-2, 300))
        if roll < 0.1:
            return int(rng.integers(0, 9)), int(rng.choice([-1, 2, 4, 9, 10, 255, 256, *INT32]))
        if roll < 0.25:
            return int(rng.integers(0, 9)), int(rng.integers(0, 9))
        row, col = env.ahead(agent, 1)
        facing = env.on_map(row, col) and env.cell[row][col] >= 2
        if env.agent_item[agent][rules.LASER] and env.targets(agent) and roll < 0.7:
            return rules.ATTACK, int(rng.integers(0, 9))
        if facing and roll < 0.85:
            j = env.faced_converter(agent)
            if j is not None:
                wanted = any(need and held for need, held in zip(env.recipe_in(j), env.agent_item[agent]))
                return (rules.PUT if wanted and rng.random() < 0.6 else rules.GET), int(rng.integers(0, 9))
            return int(rng.choice([rules.SWAP, rules.SWAP, rules.ROTATE])), int(rng.integers(0, 4))
        around = [
            turn for turn, (dr, dc) in enumerate(rules.STEPS)
            if env.on_map(env.agent_row[agent] + dr, env.agent_col[agent] + dc)
            and env.cell[env.agent_row[agent] + dr][env.agent_col[agent] + dc] >= 2
        ]  # fmt: skip
        if around and roll < 0.9:
            return rules.ROTATE, int(rng.choice(around))
        return (
            (rules.MOVE, int(rng.random() < 0.2)) if roll < 0.97 else (rules.ROTATE, int(rng.integers(0, 4)))
        )
