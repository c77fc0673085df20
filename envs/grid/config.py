"""The grid world's configuration: the flat record that the rules read, and its builder from readable keys.

    record, table = grid_config(map="arena", room_size=[16, 16], num_agents=4,
                                objects={"mine_red": 4, "generator_red": 3, "altar": 3, "wall": 10},
                                rewards={"heart": 1.0, "ore_red": {"weight": 0.02, "cap": 0.02}})

Place in the flow: recipes (configs/env/*.yaml, `env.params.*`) → grid_config → GridFactory (env.py) → C.
`GRID_CONFIG` is `GridConfig` of grid_state.h, field for field; tests/envs/test_grid_config.py compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError

ITEMS = (
    "ore_red",
    "ore_blue",
    "ore_green",
    "battery_red",
    "battery_blue",
    "battery_green",
    "heart",
    "armor",
    "laser",
    "blueprint",
)
TYPES = (
    "agent",
    "wall",
    "mine_red",
    "mine_blue",
    "mine_green",
    "generator_red",
    "generator_blue",
    "generator_green",
    "altar",
    "armory",
    "lasery",
    "lab",
    "factory",
    "temple",
    "block",
)
ACTIONS = (
    "noop",
    "move",
    "rotate",
    "put_items",
    "get_items",
    "attack",
    "swap",
    "change_color",
    "change_glyph",
)
STATS = ("hearts", "ore", "battery", "items_put", "hits", "items_stolen", "moves", "failed")
"""Per agent and episode: hearts, ore and batteries taken from converters (hearts less those put back), items
put, attacks that froze or were blocked, items stolen, cells moved, failed turns (frozen ones included)."""
OBSERVATIONS = {"tokens": (200, 3), "dense": (11, 11, 24), "compact": (387,)}
MAP_KINDS = ("table", "arena", "rooms", "maze")
MAP_CHARACTERS = {
    "#": 1,
    ".": 255,
    " ": 255,
    "@": 0,
    "m": 2,
    "n": 3,
    "o": 4,
    "g": 5,
    "h": 6,
    "i": 7,
    "a": 8,
    "A": 9,
    "L": 10,
    "B": 11,
    "F": 12,
    "T": 13,
    "b": 14,
}
"""ASCII maps: character → type id, 255 for an empty cell."""

GRID_CONFIG = np.dtype(
    [
        ("height", "i4"),
        ("width", "i4"),
        ("num_agents", "i4"),
        ("max_steps", "i4"),
        ("limit_is_terminal", "i4"),
        ("map_kind", "i4"),
        ("num_maps", "i4"),
        ("border", "i4"),
        ("rooms_y", "i4"),
        ("rooms_x", "i4"),
        ("room_height", "i4"),
        ("room_width", "i4"),
        ("count", "i4", 15),
        ("group_by_room", "i4"),
        ("max_objects", "i4"),
        ("recipe_in", "i4", (15, 10)),
        ("recipe_out", "i4", (15, 10)),
        ("cooldown", "i4", 15),
        ("conversion_ticks", "i4", 15),
        ("max_output", "i4", 15),
        ("initial", "i4", 15),
        ("item_cap", "i4", 10),
        ("reward_weight", "i4", 10),
        ("reward_cap", "i4", 10),
        ("freeze_duration", "i4"),
        ("actions_enabled", "i4"),
        ("group_reward_pct", "f4"),
        ("observation", "i4"),
    ]
)

NO_CAP = 1_000_000_000
"""reward_cap in thousandths: more than any weight * count."""
MAX_SIDE = 255
COLORS = ("red", "blue", "green")
CLASSIC: dict[str, dict[str, Any]] = {
    **{f"mine_{c}": {"inputs": {}, "outputs": {f"ore_{c}": 1}, "cooldown": 50} for c in COLORS},
    **{
        f"generator_{c}": {"inputs": {f"ore_{c}": 1}, "outputs": {f"battery_{c}": 1}, "cooldown": 25}
        for c in COLORS
    },
    "altar": {"inputs": {"battery_red": 3}, "outputs": {"heart": 1}, "cooldown": 10},
    "armory": {"inputs": {"ore_red": 3}, "outputs": {"armor": 1}, "cooldown": 10},
    "lasery": {"inputs": {"ore_red": 1, "battery_red": 2}, "outputs": {"laser": 1}, "cooldown": 10},
    "lab": {"inputs": {"ore_red": 3, "battery_red": 3}, "outputs": {"blueprint": 1}, "cooldown": 5},
    "factory": {
        "inputs": {"blueprint": 1, "ore_red": 5, "battery_red": 5},
        "outputs": {"armor": 5, "laser": 5},
        "cooldown": 5,
    },
    "temple": {"inputs": {"heart": 1, "blueprint": 1}, "outputs": {"heart": 5}, "cooldown": 5},
}
"""MettaGrid's classic converters; each also has conversion_ticks 1, max_output 5, initial 0."""


def _integer(key: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise UserError(f"{key}={value!r}: expected a whole number from {low} to {high}")
    return int(value)


def _pair(key: str, value: Any) -> tuple[int, int]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise UserError(f"{key}={value!r}: expected two whole numbers, [rows, columns]")
    return _integer(f"{key}[0]", value[0], 1, MAX_SIDE), _integer(f"{key}[1]", value[1], 1, MAX_SIDE)


def _index(key: str, name: Any, names: Sequence[str]) -> int:
    if name not in names:
        raise UserError(f"{key}: unknown name {name!r}; expected one of {', '.join(names)}")
    return names.index(name)


def _mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError(f"{key}={value!r}: expected names with values, such as {{name: 1}}")
    return value


def _thousandths(key: str, value: Any) -> int:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not abs(value) <= 1000 or abs(value * 1000 - round(value * 1000)) > 1e-6:
        raise UserError(
            f"{key}={value!r}: expected a number from -1000 to 1000 in whole thousandths "
            "(rewards are counted in thousandths)"
        )
    return round(value * 1000)


def _set_rewards(record: Array, rewards: Mapping[str, Any]) -> None:
    record["reward_cap"][:] = NO_CAP
    for name, given in _mapping("rewards", rewards).items():
        item = _index("rewards", name, ITEMS)
        reward = given if isinstance(given, Mapping) else {"weight": given}
        for part in reward:
            _index(f"rewards.{name}", part, ("weight", "cap"))
        if "weight" not in reward:
            raise UserError(f"rewards.{name}={given!r}: expected a number, or {{weight: …, cap: …}}")
        record["reward_weight"][item] = _thousandths(f"rewards.{name}.weight", reward["weight"])
        if reward.get("cap") is not None:
            cap = _thousandths(f"rewards.{name}.cap", reward["cap"])
            if cap <= 0:
                raise UserError(f"rewards.{name}.cap={reward['cap']!r}: expected a number above 0")
            record["reward_cap"][item] = cap


def _set_recipes(record: Array, recipes: Mapping[str, Any]) -> None:
    changes = _mapping("recipes", recipes)
    for name in changes:
        _index("recipes", name, tuple(CLASSIC))
    record["conversion_ticks"][:] = 1
    for name, classic in CLASSIC.items():
        kind = TYPES.index(name)
        recipe = {"conversion_ticks": 1, "max_output": 5, "initial": 0, **classic}
        for part, value in _mapping(f"recipes.{name}", changes.get(name, {})).items():
            _index(f"recipes.{name}", part, tuple(recipe))
            recipe[part] = value
        for part, field in (("inputs", "recipe_in"), ("outputs", "recipe_out")):
            for item, count in _mapping(f"recipes.{name}.{part}", recipe[part]).items():
                at = _index(f"recipes.{name}.{part}", item, ITEMS)
                record[field][kind, at] = _integer(f"recipes.{name}.{part}.{item}", count, 0, 255)
        if not record["recipe_out"][kind].any():
            raise UserError(f"recipes.{name}.outputs={recipe['outputs']!r}: expected at least one item")
        for part, low, high in (
            ("cooldown", 0, 1_000_000),
            ("conversion_ticks", 1, 1_000_000),
            ("max_output", 1, 2550),
            ("initial", 0, 255),
        ):
            record[part][kind] = _integer(f"recipes.{name}.{part}", recipe[part], low, high)


def read_maps(path: str | Path) -> Array:
    """ASCII maps → u8 [maps, height, width] of type ids, 255 for empty, smaller maps padded with walls.

    Maps in a file are separated by a blank line or `---`.

    Raises:
        UserError: no such file, no map in it, an unknown character, or a map that is too large.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(
            f"map={str(path)!r}: cannot read it ({error.strerror}); expected arena, rooms, maze, "
            "or the path of a text file that holds ASCII maps"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"map={str(path)!r}: not a text file; expected ASCII maps") from error
    maps: list[list[str]] = [[]]
    for line in lines:
        if line.strip() in ("", "---"):
            maps.append([])
        else:
            maps[-1].append(line)
    maps = [rows for rows in maps if rows]
    if not maps:
        raise UserError(f"map={str(path)!r}: holds no map")
    height, width = max(map(len, maps)), max(len(row) for rows in maps for row in rows)
    if max(height, width) > MAX_SIDE:
        raise UserError(f"map={str(path)!r}: {height} x {width} cells; at most {MAX_SIDE} x {MAX_SIDE}")
    table = np.full((len(maps), height, width), TYPES.index("wall"), np.uint8)
    for number, rows in enumerate(maps):
        for y, row in enumerate(rows):
            for x, character in enumerate(row):
                if character not in MAP_CHARACTERS:
                    known = " ".join(MAP_CHARACTERS)
                    raise UserError(
                        f"map={str(path)!r}: unknown character {character!r} in map "
                        f"{number + 1}, line {y + 1}; expected a space or one of {known}"
                    )
                table[number, y, x] = MAP_CHARACTERS[character]
    return table


def _set_table(record: Array, path: str | Path) -> Array:
    table = read_maps(path)
    agents = (table == 0).sum(axis=(1, 2))
    if (agents != record["num_agents"]).any():
        raise UserError(
            f"map={str(path)!r}: its maps have {', '.join(map(str, agents))} agents (@), but "
            f"num_agents={record['num_agents']}; every map must hold num_agents of them"
        )
    record["num_maps"], record["height"], record["width"] = table.shape
    record["rooms_y"] = record["rooms_x"] = 1
    record["max_objects"] = ((table >= 2) & (table != 255)).sum(axis=(1, 2)).max()
    return table


def _set_rooms(
    record: Array,
    kind: str,
    rooms: tuple[int, int],
    room: tuple[int, int],
    border: int,
    objects: Mapping[str, Any],
) -> None:
    for name, count in _mapping("objects", objects).items():
        record["count"][_index("objects", name, TYPES[1:]) + 1] = _integer(f"objects.{name}", count, 0, 65025)
    (ry, rx), (h, w), agents = rooms, room, int(record["num_agents"])
    if kind == "maze":
        if rooms != (1, 1) or border < 1:
            raise UserError(
                f"map=maze takes rooms=[1, 1] and border of at least 1, not rooms={list(rooms)}, "
                f"border={border}; its size is room_size, in maze cells"
            )
        size = [2 * (border - 1) + 2 * n + 1 for n in room]
        free = 2 * h * w - 1
    else:
        gap = int(kind == "rooms")
        size = [2 * border + n * side + gap * (n - 1) for n, side in zip(rooms, room)]
        doors = gap * (min(ry - 1, 2) + min(rx - 1, 2))
        free = h * w - doors
    record["height"], record["width"] = size
    record["border"], record["rooms_y"], record["rooms_x"] = border, ry, rx
    record["room_height"], record["room_width"] = room
    needed = -(-agents // (ry * rx)) + int(record["count"].sum())
    if max(size) > MAX_SIDE or ry * rx > 255:
        raise UserError(
            f"the map is {size[0]} x {size[1]} cells in {ry * rx} rooms; at most {MAX_SIDE} x "
            f"{MAX_SIDE} and 255 rooms: use smaller or fewer rooms (room_size, rooms, border)"
        )
    if needed > free:
        raise UserError(
            f"{needed} agents and objects do not fit a room with {free} free cells (map={kind}, "
            f"room_size={list(room)}); make room_size larger, or num_agents or objects fewer"
        )
    record["max_objects"] = ry * rx * (record["count"].sum() - record["count"][TYPES.index("wall")])


DEFAULT_OBJECTS = {"mine_red": 4, "generator_red": 3, "altar": 3, "wall": 10, "block": 4}


def grid_config(
    *,
    map: str = "arena",
    num_agents: int = 4,
    rooms: Sequence[int] | None = None,
    room_size: Sequence[int] | None = None,
    border: int | None = None,
    objects: Mapping[str, int] | None = None,
    groups: str = "one",
    max_steps: int = 1000,
    limit_is_terminal: bool = False,
    rewards: Mapping[str, Any] | None = None,
    group_reward_pct: float = 0.0,
    actions: Sequence[str] | None = None,
    observation: str = "compact",
    freeze_duration: int = 10,
    recipes: Mapping[str, Any] | None = None,
) -> tuple[Array, Array | None]:
    """The record (shape (), dtype GRID_CONFIG) and the table of maps (u8 [maps, height, width] or None).

    Args:
        map: arena, rooms or maze (see grid_maps.h), or the path of a text file with ASCII maps.
        num_agents: in one environment; spread over the rooms.
        rooms: [rows, columns] of rooms, default [1, 1].
        room_size: [height, width] of a room's inside, default [16, 16]; of a maze, in maze cells.
        border: thickness of the wall around, default 1.
        objects: how many of each type (TYPES without agent) in each room, default DEFAULT_OBJECTS.
        groups: "one" for all, or "per_room".
        max_steps: length of an episode.
        limit_is_terminal: the time limit is a terminal instead of a truncation.
        rewards: for each item: its weight, or {weight, cap}; the reward is the change of
            min(weight * count, cap). Default {heart: 1.0}.
        group_reward_pct: share of the reward, 0 to 1, that is averaged over the group.
        actions: names of the enabled ACTIONS, default all but change_color and change_glyph.
        observation: tokens, dense or compact.
        freeze_duration: turns that an agent hit by an attack loses, 0 to 255.
        recipes: changes to CLASSIC by converter: inputs, outputs, cooldown, conversion_ticks, max_output,
            initial.

    Raises:
        UserError: an unknown name, a value out of range, or things that do not fit the map.
    """
    record = np.zeros((), GRID_CONFIG)
    record["num_agents"] = _integer("num_agents", num_agents, 1, 10_000)
    record["max_steps"] = _integer("max_steps", max_steps, 1, 4_000_000)
    record["freeze_duration"] = _integer("freeze_duration", freeze_duration, 0, 255)
    if not isinstance(limit_is_terminal, bool):
        raise UserError(f"limit_is_terminal={limit_is_terminal!r}: expected true or false")
    record["limit_is_terminal"] = limit_is_terminal
    record["observation"] = _index("observation", observation, tuple(OBSERVATIONS))
    record["group_by_room"] = _index("groups", groups, ("one", "per_room"))
    number = isinstance(group_reward_pct, (int, float)) and not isinstance(group_reward_pct, bool)
    if not number or not 0 <= group_reward_pct <= 1:
        raise UserError(f"group_reward_pct={group_reward_pct!r}: expected a number from 0 to 1")
    record["group_reward_pct"] = group_reward_pct
    if isinstance(actions, str):
        raise UserError(f"actions={actions!r}: expected a list of names from {', '.join(ACTIONS)}")
    for name in ACTIONS[:7] if actions is None else actions:
        record["actions_enabled"] |= 1 << _index("actions", name, ACTIONS)
    record["item_cap"] = 50
    record["item_cap"][ITEMS.index("heart")] = 255
    _set_rewards(record, {"heart": 1.0} if rewards is None else rewards)
    _set_recipes(record, {} if recipes is None else recipes)
    if map in MAP_KINDS[1:]:
        record["map_kind"] = MAP_KINDS.index(map)
        _set_rooms(
            record,
            map,
            _pair("rooms", [1, 1] if rooms is None else rooms),
            _pair("room_size", [16, 16] if room_size is None else room_size),
            _integer("border", 1 if border is None else border, 0, 127),
            DEFAULT_OBJECTS if objects is None else objects,
        )
        table = None
    else:
        given = {"rooms": rooms, "room_size": room_size, "border": border, "objects": objects}
        useless = [key for key, value in given.items() if value is not None]
        if useless:
            raise UserError(
                f"{', '.join(useless)}: no effect with map={str(map)!r}, which places all; "
                "leave these keys out, or use map=arena, rooms or maze"
            )
        table = _set_table(record, map)
    if record["num_agents"] + record["max_objects"] > 32_000:
        raise UserError(f"{record['num_agents']} agents and {record['max_objects']} objects: more than 32000")
    return record, table
