"""Provides named views of one env's state bytes, for tests and replays; not for the hot path.

    views = state_views(record, batch.states[0]);  views["agent_row"], views["cell"], …

The layout is grid_state.h's; names that start with `cache_` are computed from the rest of the state.
"""

from __future__ import annotations

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.envs.grid._grid import GridParams

HEAD = np.dtype(
    [
        ("step", "i4"),
        ("lifetime", "u4"),
        ("episode", "u4"),
        ("pending_reset", "i4"),
        ("num_objects", "i4"),
        ("cache_next_due", "i4"),
        ("cache_completion", "i4"),
        ("zero", "i4", 9),
    ]
)
AGENT = np.dtype(
    [
        ("item", "u1", 10),
        ("orientation", "u1"),
        ("frozen", "u1"),
        ("group", "u1"),
        ("color", "u1"),
        ("glyph", "u1"),
        ("last_action", "u1"),
        ("last_arg", "u1"),
        ("row", "u1"),
        ("col", "u1"),
        ("zero", "u1"),
        ("cache_items", "u2"),
        ("zero2", "u2"),
        ("reward", "i4"),
        ("stat", "i4", 8),
        ("zero3", "i4"),
    ]
)
OBJECT = np.dtype(
    [
        ("item", "u1", 10),
        ("type", "u1"),
        ("row", "u1"),
        ("col", "u1"),
        ("phase", "u1"),
        ("cache_items", "u2"),
        ("due", "i4"),
    ]
)
PAD = 5
"""Cells of padding on each side of cache_bits and cache_plane."""


def state_views(record: Array, buffer: Array) -> dict[str, Array]:
    """Returns views (not copies) of one env's state: uint8 [size] → arrays by name.

    Scalars have shape (); `agent_*` [num_agents, …]; `object_*` [max_objects, …]; `cell` [height, width];
    `cache_bits` u4 [height+10, words], bit c of word w = padded column 32 w + c; `cache_plane`
    u1 [height+10, width+10, 3].
    """
    agents, objects = int(record["num_agents"]), int(record["max_objects"])
    height, width = int(record["height"]), int(record["width"])
    table = np.zeros((record["num_maps"], height, width), np.uint8) if record["map_kind"] == 0 else None
    at = GridParams(record, table).layout()
    if buffer.dtype != np.uint8 or buffer.shape != (at["size"],):
        raise ValueError(f"state is {buffer.dtype} {buffer.shape}, expected uint8 ({at['size']},)")

    def part(start: int, dtype: np.dtype | str, *shape: int) -> Array:
        count = int(np.prod(shape))
        return buffer[start : start + count * np.dtype(dtype).itemsize].view(dtype).reshape(shape)

    head = part(0, HEAD)
    agent, thing = part(at["agents_at"], AGENT, agents), part(at["objects_at"], OBJECT, objects)
    views = {name: head[name] for name in HEAD.names or () if not name.startswith("zero")}
    for prefix, records in (("agent", agent), ("object", thing)):
        for name in records.dtype.names or ():
            if name == "cache_items":
                views[f"cache_{prefix}_items"] = records[name]
            elif not name.startswith("zero"):
                views[f"{prefix}_{name}"] = records[name]
    views["order"] = part(at["order_at"], "u2", agents)
    views["cell"] = part(at["cells_at"], "i2", height, width)
    views["cache_bits"] = part(at["bits_at"], "u4", height + 2 * PAD, at["bit_words"])
    views["cache_plane"] = part(at["plane_at"], "u1", height + 2 * PAD, width + 2 * PAD, 3)
    return views
