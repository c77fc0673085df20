"""Implements the grid's three observations in plain Python, from a `GridReference`.

`tokens` and `dense` both come from the state; `compact` is computed from dense and the recipes, as its
documentation promises; `dense_of_tokens` is the relation between the first two.
"""

from __future__ import annotations

import numpy as np

from tests.reference.grid_reference import LASER, NUM_ITEMS, STEPS, WALL, GridReference

WINDOW, CENTRE, NUM_TOKENS, CHANNELS, COMPACT = 11, 5, 200, 24, 387
EMPTY = 255
TYPE, GROUP, HP, FROZEN, ORIENTATION, COLOR, BUSY, SWAPPABLE, COMPLETION = range(9)
LAST_ACTION, LAST_ARG, LAST_REWARD, GLYPH, RESOURCE_REWARDS, INVENTORY = range(9, 15)
ALWAYS_GIVEN = (TYPE, GROUP, ORIENTATION)
COLOR_OF_TYPE = {3: 1, 4: 2, 6: 1, 7: 2}  # blue and green mines and generators

Features = list[tuple[int, int]]


def thing_features(env: GridReference, row: int, col: int) -> Features:
    """(feature, value) of what stands on a cell, by feature id, clamped to 255; none for an empty cell."""
    agent, j = env.agent_at(row, col), env.object_at(row, col)
    if agent is not None:
        found = {
            TYPE: 0, GROUP: env.agent_group[agent], FROZEN: env.agent_frozen[agent],
            ORIENTATION: env.agent_orientation[agent],
            COLOR: env.agent_color[agent], GLYPH: env.agent_glyph[agent],
        }  # fmt: skip
        items, always = env.agent_item[agent], ALWAYS_GIVEN
    elif j is not None and env.is_converter[env.object_type[j]]:
        kind = env.object_type[j]
        found = {TYPE: kind, COLOR: COLOR_OF_TYPE.get(kind, 0), BUSY: int(env.object_phase[j] != 0)}
        items, always = env.object_item[j], (TYPE,)
    elif j is not None:  # a block; also a type whose recipe gives nothing, which stands still
        kind = env.object_type[j]
        found, items, always = {TYPE: kind, SWAPPABLE: int(kind == 14)}, [0] * NUM_ITEMS, (TYPE,)
    elif env.cell[row][col] == 1:
        found, items, always = {TYPE: WALL}, [0] * NUM_ITEMS, (TYPE,)
    else:
        return []
    found |= {INVENTORY + item: count for item, count in enumerate(items)}
    given = [feature for feature in sorted(found) if found[feature] or feature in always]
    return [(feature, min(found[feature], 255)) for feature in given]


def global_features(env: GridReference, agent: int) -> Features:
    """What only the agent itself knows, values of 0 left out."""
    max_steps = env.config.max_steps
    reward = env.agent_reward[agent]  # thousandths; the token is ×100, rounded half away from zero
    values = (
        (COMPLETION, (510 * env.step_count + max_steps) // (2 * max_steps)),
        (LAST_ACTION, env.agent_last_action[agent]),
        (LAST_ARG, env.agent_last_arg[agent]),
        (LAST_REWARD, (reward + 5) // 10 if reward > 0 else 0),
        (RESOURCE_REWARDS, sum(1 << (7 - i) for i in range(8) if env.config.reward_weight[i] != 0)),
    )
    return [(feature, min(value, 255)) for feature, value in values if value]


def window_cells(env: GridReference, agent: int) -> list[tuple[int, int, int, int]]:
    """(window row, window column, map row, map column) of the cells on the map, nearest first."""
    offsets = [(dr, dc) for dr in range(-CENTRE, CENTRE + 1) for dc in range(-CENTRE, CENTRE + 1)]
    offsets.sort(key=lambda d: (abs(d[0]) + abs(d[1]), d[0], d[1]))
    at_row, at_col = env.agent_row[agent], env.agent_col[agent]
    cells = [(CENTRE + dr, CENTRE + dc, at_row + dr, at_col + dc) for dr, dc in offsets]
    return [cell for cell in cells if env.on_map(cell[2], cell[3])]


def all_tokens(env: GridReference, agent: int) -> list[tuple[int, int, int]]:
    """(location, feature, value) of everything seen, none dropped."""
    centre = CENTRE << 4 | CENTRE
    found = [(centre, feature, value) for feature, value in global_features(env, agent)]
    for r, c, row, col in window_cells(env, agent):
        found += [(r << 4 | c, feature, value) for feature, value in thing_features(env, row, col)]
    return found


def tokens(env: GridReference) -> np.ndarray:
    """[agents, 200, 3] uint8: location, feature, value; unused rows are 255."""
    out = np.full((env.config.num_agents, NUM_TOKENS, 3), EMPTY, np.uint8)
    for agent in range(env.config.num_agents):
        for place, token in enumerate(all_tokens(env, agent)[:NUM_TOKENS]):
            out[agent, place] = token
    return out


def dense(env: GridReference) -> np.ndarray:
    """[agents, 11, 11, 24] uint8: channel f is feature f, channel 0 the type plus 1 (0: nothing)."""
    out = np.zeros((env.config.num_agents, WINDOW, WINDOW, CHANNELS), np.uint8)
    for agent in range(env.config.num_agents):
        for r, c, row, col in window_cells(env, agent):
            for feature, value in thing_features(env, row, col):
                out[agent, r, c, feature] = value + (feature == TYPE)
        for feature, value in global_features(env, agent):
            out[agent, CENTRE, CENTRE, feature] = value
    return out


def compact(dense_obs: np.ndarray, config) -> np.ndarray:
    """[agents, 387] uint8 from dense and the recipes: three bytes a cell, then 24 of one's own."""
    out = np.zeros((len(dense_obs), COMPACT), np.uint8)
    for view, row in zip(dense_obs, out):
        cells = np.array([[cell_bytes(cell, config) for cell in line] for line in view.tolist()])
        own = view[CENTRE, CENTRE].tolist()
        faced_row, faced_col = STEPS[own[ORIENTATION]]
        row[: 3 * WINDOW * WINDOW] = cells.reshape(-1)
        row[3 * WINDOW * WINDOW :] = [
            *own[INVENTORY:],
            own[ORIENTATION], own[FROZEN], own[GROUP], own[COLOR], own[GLYPH], own[LAST_ACTION],
            own[LAST_ARG], own[LAST_REWARD], own[COMPLETION], own[RESOURCE_REWARDS],
            *cells[CENTRE + faced_row, CENTRE + faced_col],
            0,
        ]  # fmt: skip
    return out


def cell_bytes(channels: list[int], config) -> tuple[int, int, int]:
    """The three bytes of a cell: type + 1; the state of what is there; a coarse count of what it holds."""
    if channels[0] == 0:
        return 0, 0, 0
    kind, items = channels[0] - 1, channels[INVENTORY:]
    if kind == 0:
        state = 1 + channels[ORIENTATION] + 4 * (channels[FROZEN] > 0) + 8 * min(channels[GROUP], 15)
        return 1, state, min(15, sum(items)) + 16 * min(15, items[LASER])
    gives = [item for item in range(NUM_ITEMS) if config.recipe_out[kind][item] > 0]
    takes = [item for item in range(NUM_ITEMS) if config.recipe_in[kind][item] > 0 and item not in gives]
    if not gives:  # no converter
        return kind + 1, 0, 0
    stock, inputs = sum(items[item] for item in gives), sum(items[item] for item in takes)
    return kind + 1, channels[BUSY], min(15, stock) + 16 * min(15, inputs)


def dense_of_tokens(token_rows: np.ndarray) -> np.ndarray:
    """Dense [agents, 11, 11, 24] from tokens [agents, 200, 3]: equal to `dense` where none was dropped."""
    out = np.zeros((len(token_rows), WINDOW, WINDOW, CHANNELS), np.uint8)
    for agent, rows in enumerate(token_rows.tolist()):
        for location, feature, value in rows:
            if location != EMPTY:
                out[agent, location >> 4, location & 15, feature] = value + (feature == TYPE)
    return out
