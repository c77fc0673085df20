"""Implements the grid's four map builders in plain Python.

Each takes the config (see `grid_reference.Config`) and the episode's random numbers and gives a `Map`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.reference.philox import Random

TABLE, ARENA, ROOMS, MAZE = range(4)
WALL, BLOCK = 1, 14
AGENT_BYTE, EMPTY_BYTE = 0, 255
FILL_ORDER = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, WALL, BLOCK)

Cell = tuple[int, int]


@dataclass
class Map:
    """Where things are when an episode starts."""

    height: int
    width: int
    walls: set[Cell] = field(default_factory=set)
    agents: list[tuple[int, int, int]] = field(default_factory=list)
    """(row, column, room), in the agents' order."""
    objects: list[tuple[int, int, int]] = field(default_factory=list)
    """(type, row, column), in the objects' order."""

    def place(self, kind: int, cell: Cell) -> None:
        if kind == WALL:
            self.walls.add(cell)
        else:
            self.objects.append((kind, *cell))


def build_map(config, table: bytes, random: Random) -> Map:
    """The map of one episode; `table` holds num_maps × height × width bytes (map_kind TABLE only)."""
    builder = {TABLE: build_table, ARENA: build_arena, ROOMS: build_rooms, MAZE: build_maze}[config.map_kind]
    return builder(config, table, random)


def build_table(config, table: bytes, random: Random) -> Map:
    """One of the given maps; agents and objects are numbered in scan order."""
    index = random.below(config.num_maps) if config.num_maps > 1 else 0
    size = config.height * config.width
    grid = Map(config.height, config.width)
    for place, byte in enumerate(table[index * size : (index + 1) * size]):
        cell = divmod(place, config.width)
        if byte == AGENT_BYTE:
            grid.agents.append((*cell, 0))
        elif byte != EMPTY_BYTE:
            grid.place(byte, cell)
    return grid


def build_arena(config, table: bytes, random: Random) -> Map:
    """Rooms side by side without walls between them, inside a border of walls."""
    grid = bordered(config)
    for room in range(config.rooms_y * config.rooms_x):
        fill_room(grid, config, room, room_cells(config, room, gap=0), random)
    return grid


def build_rooms(config, table: bytes, random: Random) -> Map:
    """Rooms with one line of wall between neighbours, and one door in each such wall."""
    grid = bordered(config)
    down, right = config.room_height + 1, config.room_width + 1
    for y in range(config.rooms_y):  # the lines of wall
        for x in range(config.rooms_x):
            top, left = config.border + y * down, config.border + x * right
            if x + 1 < config.rooms_x:
                grid.walls |= {
                    (row, left + config.room_width) for row in range(top, top + config.room_height)
                }
            if y + 1 < config.rooms_y:
                grid.walls |= {(top + config.room_height, c) for c in range(left, left + config.room_width)}
            if x + 1 < config.rooms_x and y + 1 < config.rooms_y:
                grid.walls.add((top + config.room_height, left + config.room_width))
    keep_empty: set[Cell] = set()
    for y in range(config.rooms_y):
        for x in range(config.rooms_x):
            top, left = config.border + y * down, config.border + x * right
            doors = []
            if x + 1 < config.rooms_x:
                doors.append((top + random.below(config.room_height), left + config.room_width))
            if y + 1 < config.rooms_y:
                doors.append((top + config.room_height, left + random.below(config.room_width)))
            for row, col in doors:
                grid.walls.remove((row, col))
                keep_empty |= {(row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)}
    for room in range(config.rooms_y * config.rooms_x):
        free = [cell for cell in room_cells(config, room, gap=1) if cell not in keep_empty]
        fill_room(grid, config, room, free, random)
    return grid


def build_maze(config, table: bytes, random: Random) -> Map:
    """A perfect maze by depth-first search; objects at dead ends, agents on any other floor."""
    grid = Map(config.height, config.width)
    grid.walls = {(row, col) for row in range(config.height) for col in range(config.width)}

    def place(i: int, j: int) -> Cell:
        return config.border + 2 * i, config.border + 2 * j

    def neighbours(i: int, j: int) -> list[Cell]:
        around = [(i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)]
        return [(y, x) for y, x in around if 0 <= y < config.room_height and 0 <= x < config.room_width]

    def between(a: Cell, b: Cell) -> Cell:
        (row_a, col_a), (row_b, col_b) = place(*a), place(*b)
        return (row_a + row_b) // 2, (col_a + col_b) // 2

    visited, stack = {(0, 0)}, [(0, 0)]
    grid.walls.remove(place(0, 0))
    while stack:
        choices = [cell for cell in neighbours(*stack[-1]) if cell not in visited]
        if not choices:
            stack.pop()
            continue
        chosen = choices[random.below(len(choices))]
        grid.walls -= {between(stack[-1], chosen), place(*chosen)}
        visited.add(chosen)
        stack.append(chosen)

    dead_ends = []
    for i in range(config.room_height):
        for j in range(config.room_width):
            opened = [n for n in neighbours(i, j) if between((i, j), n) not in grid.walls]
            if len(opened) == 1:
                dead_ends.append(place(i, j))
    random.shuffle(dead_ends)
    things = [kind for kind in FILL_ORDER for _ in range(config.count[kind])]
    for kind, cell in zip(things, dead_ends):
        grid.place(kind, cell)
    taken = {(row, col) for _, row, col in grid.objects} | grid.walls
    floor = [(r, c) for r in range(config.height) for c in range(config.width) if (r, c) not in taken]
    random.shuffle(floor)
    grid.agents = [(*cell, 0) for cell in floor[: config.num_agents]]
    return grid


def bordered(config) -> Map:
    """An empty map inside `border` lines of wall."""
    grid, edge = Map(config.height, config.width), config.border
    for row in range(config.height):
        for col in range(config.width):
            inside = edge <= row < config.height - edge and edge <= col < config.width - edge
            if not inside:
                grid.walls.add((row, col))
    return grid


def room_cells(config, room: int, gap: int) -> list[Cell]:
    """The cells of a room, row-major; rooms stand `gap` cells apart."""
    y, x = divmod(room, config.rooms_x)
    top = config.border + y * (config.room_height + gap)
    left = config.border + x * (config.room_width + gap)
    return [(top + r, left + c) for r in range(config.room_height) for c in range(config.room_width)]


def fill_room(grid: Map, config, room: int, free: list[Cell], random: Random) -> None:
    """Shuffle the free cells; agents, then objects in fill order, take them from the front."""
    rooms = config.rooms_y * config.rooms_x
    agents = config.num_agents // rooms + (room < config.num_agents % rooms)
    random.shuffle(free)
    grid.agents += [(*cell, room) for cell in free[:agents]]
    things = [kind for kind in FILL_ORDER for _ in range(config.count[kind])]
    for kind, cell in zip(things, free[agents:]):
        grid.place(kind, cell)
