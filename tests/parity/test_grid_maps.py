"""Compares the native map builders with the reference at full size, and checks the maps' guarantees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.envs.grid.env import GridSim
from tests.parity.grid_cases import record
from tests.parity.test_grid_parity import assert_same_state
from tests.reference.grid_maps_reference import ARENA, MAZE, ROOMS
from tests.reference.grid_reference import STEPS, GridReference
from tests.reference.philox import Random, philox4x32

ARENA_COUNT = {2: 10, 5: 5, 8: 5, 1: 20, 14: 20}
SHAPES = {
    "grid": {"count": {2: 4, 5: 3, 8: 3, 1: 10, 14: 4}},
    "solo": {"num_agents": 1, "room_height": 10, "room_width": 10, "count": {2: 2, 5: 1, 8: 1}},
    "arena": {
        "num_agents": 24, "rooms_y": 2, "rooms_x": 2, "room_height": 25, "room_width": 25, "border": 6,
        "group_by_room": 1, "count": ARENA_COUNT,
    },
    "rooms": {
        "map_kind": ROOMS, "num_agents": 13, "rooms_y": 3, "rooms_x": 4, "room_height": 7, "room_width": 6,
        "border": 2, "count": {2: 2, 6: 1, 8: 1, 1: 3, 14: 2},
    },
    "maze": {
        "map_kind": MAZE, "num_agents": 5, "room_height": 20, "room_width": 15, "border": 3,
        "count": {2: 8, 5: 4, 8: 3, 1: 1, 14: 2},
    },
}  # fmt: skip


def test_philox_known_answers() -> None:
    """The vectors published with Random123 (kat_vectors, philox4x32 10)."""
    ones = 0xFFFFFFFF
    assert philox4x32((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox4x32((ones,) * 4, (ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert philox4x32(pi, (0xA4093822, 0x299F31D0)) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def test_below_is_even_and_shuffle_is_a_permutation() -> None:
    random = Random(1 << 63, 3, 0, 0)
    counts = np.bincount([random.below(5) for _ in range(5000)], minlength=5)
    assert counts.min() > 900
    items = list(range(50))
    random.shuffle(items)
    assert sorted(items) == list(range(50)) != items


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [0, 2**63 + 5])
def test_episodes_of_full_size(shape: str, seed: int) -> None:
    """Three episodes of two steps each: the maps follow the episode's number, not what was done."""
    config = record(max_steps=2, **SHAPES[shape])
    native, plain = GridSim(config, seed=seed, env_id=9), GridReference(config, seed=seed, env_id=9)
    native.reset()
    plain.reset()
    assert_same_state(native, plain)
    maps = [native.views["cell"].copy()]
    for _ in range(6):
        actions = np.tile(np.int32([1, 0]), (plain.config.num_agents, 1))
        native.step(actions)
        plain.step(actions)
        assert_same_state(native, plain)
        if native.first.all():
            maps.append(native.views["cell"].copy())
    assert len(maps) == 3
    assert (maps[0] != maps[1]).any()
    assert (maps[1] != maps[2]).any()


def test_maps_do_not_depend_on_history() -> None:
    """Two envs that act differently still get the same map in the second episode."""
    config = record(max_steps=3, **SHAPES["grid"])
    seconds = []
    for action in ([0, 0], [1, 0]):
        native = GridSim(config, seed=1)
        native.reset()
        for _ in range(4):
            native.step(np.tile(np.int32(action), (4, 1)))
        seconds.append(native.views["cell"].copy())
    np.testing.assert_array_equal(*seconds)


def test_arena_has_the_documented_layout() -> None:
    """62×62; 4 rooms, each with a group of 6, 10 mines, 5 generators, 5 altars, 20 walls, 20 blocks."""
    config = record(**SHAPES["arena"])
    native = GridSim(config, seed=4)
    native.reset()
    views = native.views
    assert views["cell"].shape == (62, 62)
    assert (views["cell"][:6] == 1).all()
    assert (views["cell"][:, -6:] == 1).all()
    for room in range(4):
        top, left = 6 + 25 * (room // 2), 6 + 25 * (room % 2)
        inside = views["cell"][top : top + 25, left : left + 25]
        assert (inside == 1).sum() == 20
        agents = [a for a in range(24) if views["agent_group"][a] == room]
        assert agents == list(range(6 * room, 6 * room + 6))
        rows, cols = views["agent_row"][agents], views["agent_col"][agents]
        assert ((rows >= top) & (rows < top + 25) & (cols >= left) & (cols < left + 25)).all()
    assert np.bincount(views["object_type"], minlength=15).tolist() == [
        0,
        0,
        40,
        0,
        0,
        20,
        0,
        0,
        20,
        *[0] * 5,
        80,
    ]


def reachable(cell: np.ndarray, start: tuple[int, int]) -> set[tuple[int, int]]:
    seen, stack = {start}, [start]
    while stack:
        row, col = stack.pop()
        for dr, dc in STEPS:
            there = (row + dr, col + dc)
            if there not in seen and cell[there] != 1:
                seen.add(there)
                stack.append(there)
    return seen


@given(st.integers(0, 2**64 - 1), st.integers(1, 8), st.integers(1, 8))
def test_maze_is_perfect(seed: int, height: int, width: int) -> None:
    """Every maze cell is reached, and by one way only: floor cells = 2 · cells - 1."""
    config = record(map_kind=MAZE, num_agents=1, room_height=height, room_width=width, count={})
    native = GridSim(config, seed=seed)
    native.reset()
    cell = native.views["cell"]
    floor = {(int(r), int(c)) for r, c in np.argwhere(cell != 1)}
    assert len(floor) == 2 * height * width - 1
    assert reachable(cell, (1, 1)) == floor


@given(st.integers(0, 2**64 - 1), st.integers(1, 3), st.integers(1, 3))
def test_rooms_have_doors(seed: int, rooms_y: int, rooms_x: int) -> None:
    """Without walls inside, every room is reached from every other; one door a pair of neighbours."""
    config = record(
        map_kind=ROOMS,
        rooms_y=rooms_y,
        rooms_x=rooms_x,
        room_height=4,
        room_width=5,
        num_agents=2,
        count={14: 3},
    )
    native = GridSim(config, seed=seed)
    native.reset()
    cell = native.views["cell"]
    floor = {(int(r), int(c)) for r, c in np.argwhere(cell != 1)}
    doors = rooms_y * (rooms_x - 1) + rooms_x * (rooms_y - 1)
    assert len(floor) == rooms_y * rooms_x * 20 + doors
    assert reachable(cell, min(floor)) == floor


def test_one_group_where_rooms_do_not_divide() -> None:
    config = record(map_kind=ARENA, rooms_x=2, room_width=8, group_by_room=0, num_agents=5)
    native = GridSim(config, seed=0)
    native.reset()
    assert not native.views["agent_group"].any()
