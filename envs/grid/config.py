"""Builds the grid world's configuration from readable keys: the flat record that the rules read.

    record, table = grid_config(map="arena", room_size=[16, 16], num_agents=4,
                                objects={"mine_red": 4, "generator_red": 3, "altar": 3, "wall": 10},
                                rewards={"heart": 1.0, "ore_red": {"weight": 0.02, "cap": 0.02}})

Place in the flow: recipes (configs/env/*.yaml, `env.params.*`) → grid_config → GridFactory (env.py) → C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.grid.checks import index_of, integer, pair, truth
from metta_fast.envs.grid.maps import set_rooms, set_table
from metta_fast.envs.grid.names import ACTIONS, GRID_CONFIG, ITEMS, MAP_KINDS, OBSERVATIONS
from metta_fast.envs.grid.recipes import set_recipes, set_rewards

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
    """Returns the record (shape (), dtype GRID_CONFIG) and the table of maps (u8 [maps, height, width] or None).

    Args:
        map: arena, rooms or maze (see grid_maps.h), or the path of a text file with ASCII maps.
        num_agents: agents per environment, spread over the rooms.
        rooms: [rows, columns] of rooms, default [1, 1].
        room_size: [height, width] of a room's inside, default [16, 16]; of a maze, in maze cells.
        border: thickness of the wall around, default 1.
        objects: number of each type (TYPES without agent) per room, default DEFAULT_OBJECTS.
        groups: "one" for all, or "per_room".
        max_steps: length of an episode.
        limit_is_terminal: True: the time limit is a terminal instead of a truncation.
        rewards: for each item: its weight, or {weight, cap}; the reward is the change of
            min(weight * count, cap). Default {heart: 1.0}.
        group_reward_pct: share of the reward, 0 to 1, that is averaged over the group.
        actions: names of the enabled ACTIONS, default all but change_color and change_glyph.
        observation: tokens, dense or compact.
        freeze_duration: turns that an agent hit by an attack loses, 0 to 255.
        recipes: changes to CLASSIC by converter: inputs, outputs, cooldown, conversion_ticks, max_output,
            initial.

    Raises:
        UserError: an unknown name, a value out of range, or agents and objects that do not fit the map.
    """
    record = np.zeros((), GRID_CONFIG)
    record["num_agents"] = integer("num_agents", num_agents, 1, 10_000)
    record["max_steps"] = integer("max_steps", max_steps, 1, 4_000_000)
    record["freeze_duration"] = integer("freeze_duration", freeze_duration, 0, 255)
    record["limit_is_terminal"] = truth("limit_is_terminal", limit_is_terminal)
    record["observation"] = index_of("observation", observation, tuple(OBSERVATIONS))
    record["group_by_room"] = index_of("groups", groups, ("one", "per_room"))
    _set_share(record, group_reward_pct)
    _set_actions(record, actions)
    record["item_cap"] = 50
    record["item_cap"][ITEMS.index("heart")] = 255
    set_rewards(record, {"heart": 1.0} if rewards is None else rewards)
    set_recipes(record, {} if recipes is None else recipes)
    table = _set_map(record, map, rooms, room_size, border, objects)
    if record["num_agents"] + record["max_objects"] > 32_000:
        raise UserError(f"{record['num_agents']} agents and {record['max_objects']} objects: more than 32000")
    return record, table


def _set_share(record: Array, group_reward_pct: float) -> None:
    """Sets the share of the reward that is averaged over the group."""
    number = isinstance(group_reward_pct, (int, float)) and not isinstance(group_reward_pct, bool)
    if not number or not 0 <= group_reward_pct <= 1:
        raise UserError(f"group_reward_pct={group_reward_pct!r}: expected a number from 0 to 1")
    record["group_reward_pct"] = group_reward_pct


def _set_actions(record: Array, actions: Sequence[str] | None) -> None:
    """Sets the enabled actions; None: the default ones."""
    if actions is not None and not isinstance(actions, (list, tuple)):
        raise UserError(f"actions={actions!r}: expected a list of names from {', '.join(ACTIONS)}")
    for name in ACTIONS[:7] if actions is None else actions:
        record["actions_enabled"] |= 1 << index_of("actions", name, ACTIONS)


def _set_map(
    record: Array,
    map: str,
    rooms: Sequence[int] | None,
    room_size: Sequence[int] | None,
    border: int | None,
    objects: Mapping[str, int] | None,
) -> Array | None:
    """Sets the map's kind and sizes; returns the table of maps that were read from a file, or None."""
    if map in MAP_KINDS[1:]:
        record["map_kind"] = MAP_KINDS.index(map)
        set_rooms(
            record,
            map,
            pair("rooms", [1, 1] if rooms is None else rooms),
            pair("room_size", [16, 16] if room_size is None else room_size),
            integer("border", 1 if border is None else border, 0, 127),
            DEFAULT_OBJECTS if objects is None else objects,
        )
        return None
    given = {"rooms": rooms, "room_size": room_size, "border": border, "objects": objects}
    useless = [key for key, value in given.items() if value is not None]
    if useless:
        raise UserError(
            f"{', '.join(useless)}: no effect with map={str(map)!r}, which places everything; "
            "leave these keys out, or give map=arena, rooms or maze"
        )
    return set_table(record, map)
