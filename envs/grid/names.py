"""Names the grid world's items, types, actions, statistics and observations, and lays out its configuration record.

Place in the flow: everything in envs/grid reads these; config.py fills the record from readable keys. `GRID_CONFIG` is
`GridConfig` of grid_state.h, field for field; tests/envs/test_grid_config.py compares them.
"""

from __future__ import annotations

import numpy as np

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
"""Per agent and episode: hearts, ore and batteries taken from converters (minus hearts put back), items put, attacks
that froze or were blocked, items stolen, cells moved, failed turns (including frozen ones)."""
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
"""reward_cap without a cap, in thousandths: above any weight * count."""
MAX_SIDE = 255
