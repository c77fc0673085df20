"""Fills the record's map: from a file of ASCII maps, or the sizes and objects of arena, rooms and maze."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.grid.checks import index_of, integer, mapping
from metta_fast.envs.grid.names import MAP_CHARACTERS, MAX_SIDE, TYPES
from metta_fast.storage.user_files import read_text


def read_maps(path: str | Path) -> Array:
    """Reads ASCII maps. Returns u8 [maps, height, width] of type ids, 255 for empty; walls pad smaller maps.

    Maps in a file are separated by a blank line or `---`.

    Raises:
        UserError: no such file, a file without a map, an unknown character, or a map that is too large.
    """
    if not isinstance(path, (str, Path)):
        raise UserError(
            f"map={path!r}: expected arena, rooms, maze, or the path of a text file of ASCII maps"
        )
    try:
        lines = read_text(Path(path), f"map={str(path)!r}").splitlines()
    except UserError as error:
        raise UserError(
            f"{error}; expected arena, rooms, maze, or the path of a text file that holds ASCII maps"
        ) from error
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


def set_table(record: Array, path: str | Path) -> Array:
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


def set_rooms(
    record: Array,
    kind: str,
    rooms: tuple[int, int],
    room: tuple[int, int],
    border: int,
    objects: Mapping[str, Any],
) -> None:
    for name, count in mapping("objects", objects).items():
        record["count"][index_of("objects", name, TYPES[1:]) + 1] = integer(
            f"objects.{name}", count, 0, 65025
        )
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
