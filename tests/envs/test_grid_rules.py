"""Tests each rule of the grid as a small game on a drawn map, played on the native env.

`@` agents are numbered in scan order and face up; m mine, g generator, a altar, F factory, T temple,
b block, # wall.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metta_fast.envs.grid.env import GridSim
from metta_fast.envs.grid.names import ITEMS, MAP_CHARACTERS, STATS
from tests.parity.grid_cases import record

NOOP, MOVE, ROTATE, PUT, GET, ATTACK, SWAP, COLOR, GLYPH = range(9)
UP, DOWN, LEFT, RIGHT = range(4)
ORE, BATTERY, HEART, ARMOR, LASER, BLUEPRINT = (
    ITEMS.index(name) for name in ("ore_red", "battery_red", "heart", "armor", "laser", "blueprint")
)
IDLE = (NOOP, 0)


def world(*rows: str, seed: int = 0, **changes: Any) -> GridSim:
    """A reset env on the drawn map; `changes` to the classic game as `record` takes them."""
    table = np.array([[[MAP_CHARACTERS[character] for character in row] for row in rows]], np.uint8)
    config = record(
        map_kind=0, num_maps=1, num_agents=int((table == 0).sum()), height=len(rows), width=len(rows[0]),
        max_objects=int(((table >= 2) & (table < 255)).sum()), border=0, **changes,
    )  # fmt: skip
    sim = GridSim(config, table, seed=seed)
    sim.reset()
    return sim


def play(sim: GridSim, *actions: tuple[int, int]) -> list[bool]:
    """One step, an action for each agent (noop for the rest); whether each succeeded."""
    row = list(actions) + [IDLE] * (len(sim.reward) - len(actions))
    failed = sim.views["agent_stat"][:, STATS.index("failed")].copy()
    sim.step(np.array(row, np.int64).astype(np.int32))
    return (sim.views["agent_stat"][:, STATS.index("failed")] == failed).tolist()


def wait(sim: GridSim, steps: int) -> None:
    for _ in range(steps):
        play(sim)


def give(sim: GridSim, agent: int, item: int, count: int) -> None:
    """Put items into an agent's hands, outside the rules."""
    sim.views["agent_item"][agent, item] = count
    bits = (sim.views["agent_item"][agent] > 0) @ (1 << np.arange(len(ITEMS)))
    sim.views["cache_agent_items"][agent] = bits


def place(sim: GridSim, agent: int = 0) -> tuple[int, int]:
    return int(sim.views["agent_row"][agent]), int(sim.views["agent_col"][agent])


def held(sim: GridSim, item: int, agent: int = 0) -> int:
    return int(sim.views["agent_item"][agent, item])


def stored(sim: GridSim, item: int, j: int = 0) -> int:
    return int(sim.views["object_item"][j, item])


# ---- moving --------------------------------------------------------------------------------------


def test_agents_face_up_and_move_forward_or_backward() -> None:
    sim = world("...", ".@.", "...", "...")
    assert play(sim, (MOVE, 0)) == [True]
    assert place(sim) == (0, 1)
    assert play(sim, (MOVE, 1)) == [True]
    assert play(sim, (MOVE, 1)) == [True]
    assert place(sim) == (2, 1)
    assert sim.views["agent_orientation"][0] == UP
    assert play(sim, (MOVE, 2)) == [False]


@pytest.mark.parametrize("thing", ["#", "m", "b", "@"])
def test_moves_need_an_empty_cell(thing: str) -> None:
    sim = world(thing, "@")
    mine = sim.views["cell"][1, 0] - 2
    assert play(sim, *[(MOVE, 0)] * len(sim.reward))[mine] is False
    assert place(sim, mine) == (1, 0)


def test_moves_off_the_map_fail() -> None:
    sim = world("@")
    for turn in range(4):
        assert play(sim, (ROTATE, turn)) == [True]
        assert play(sim, (MOVE, 0)) == [False]
        assert play(sim, (MOVE, 1)) == [False]
        assert play(sim, (SWAP, 0)) == [False]
        assert play(sim, (GET, 0)) == [False]


def test_first_mover_wins_in_an_order_drawn_afresh_each_step() -> None:
    """Agents do not act in the order of their numbers (right-behaviour 19)."""
    sim = world("@.@")
    play(sim, (ROTATE, RIGHT), (ROTATE, LEFT))
    winners = []
    for _ in range(60):
        done = play(sim, (MOVE, 0), (MOVE, 0))
        assert sum(done) == 1
        winners.append(done.index(True))
        assert sim.views["order"][0] == winners[-1]
        back = [IDLE, IDLE]
        back[winners[-1]] = (MOVE, 1)
        assert all(play(sim, *back))
    assert 15 < sum(winners) < 45, "each wins about half"


def test_order_is_a_permutation_and_changes() -> None:
    sim = world("@@@@@@@@")
    orders = []
    for _ in range(50):
        wait(sim, 1)
        orders.append(tuple(sim.views["order"].tolist()))
        assert sorted(orders[-1]) == list(range(8))
    assert len(set(orders)) > 45
    assert {order[0] for order in orders} == set(range(8))


# ---- actions -------------------------------------------------------------------------------------


LARGEST, SMALLEST = 2**31 - 1, -(2**31)


@pytest.mark.parametrize(
    "action",
    [
        (9, 0), (-1, 0), (LARGEST, 0), (SMALLEST, 0), (MOVE, -1), (MOVE, 2), (MOVE, LARGEST),
        (ROTATE, 4), (ROTATE, SMALLEST), (COLOR, 9), (GLYPH, -1),
    ],
)  # fmt: skip
def test_out_of_range_is_a_failed_action_never_an_error(action: tuple[int, int]) -> None:
    sim = world("...", ".@.", "...")
    assert play(sim, action) == [False]
    assert place(sim) == (1, 1)
    assert sim.views["agent_last_action"][0] == min(max(action[0], 0), 255)
    assert sim.views["agent_last_arg"][0] == min(max(action[1], 0), 255)


def test_disabled_actions_fail_and_ids_stay() -> None:
    sim = world(".", "@", actions_enabled=0b111111101)
    assert play(sim, (MOVE, 0)) == [False]
    assert play(sim, (ROTATE, DOWN)) == [True]


def test_color_and_glyph() -> None:
    sim = world("@")
    assert play(sim, (COLOR, 8)) == [True]
    assert play(sim, (GLYPH, 3)) == [True]
    assert (sim.views["agent_color"][0], sim.views["agent_glyph"][0]) == (8, 3)


# ---- converters ----------------------------------------------------------------------------------


def test_a_mine_gives_at_steps_1_52_103_and_stops_at_five() -> None:
    sim = world("m", "@")
    gave = []
    for step in range(1, 400):
        before = stored(sim, ORE)
        wait(sim, 1)
        if stored(sim, ORE) > before:
            gave.append(step)
    assert gave == [1, 52, 103, 154, 205]
    assert sim.views["object_phase"][0] == 0
    assert play(sim, (GET, 0)) == [True]
    assert held(sim, ORE) == 5
    assert stored(sim, ORE) == 0, "a get starts it again; it gives one step later"
    wait(sim, 1)
    assert stored(sim, ORE) == 1


def test_ore_to_battery_to_heart() -> None:
    """A generator takes one ore a put and needs 26 steps for each; an altar takes three batteries a put."""
    sim = world("g", "@", "a")
    give(sim, 0, ORE, 3)
    assert play(sim, (PUT, 0)) == [True]
    assert (held(sim, ORE), stored(sim, ORE)) == (2, 0), "the conversion took it at once"
    assert play(sim, (PUT, 0)) == [True]
    assert (stored(sim, BATTERY), stored(sim, ORE)) == (1, 1)
    assert play(sim, (PUT, 0)) == [True]
    assert play(sim, (PUT, 0)) == [False], "no ore is left"
    wait(sim, 52)
    assert play(sim, (GET, 0)) == [True]
    assert held(sim, BATTERY) == 3
    play(sim, (ROTATE, DOWN))
    assert play(sim, (PUT, 0)) == [True]
    assert held(sim, BATTERY) == 0
    assert play(sim, (GET, 0)) == [True], "the heart is there one step later, before the agents' turns"
    assert held(sim, HEART) == 1
    assert sim.reward[0] == np.float32(1.0)
    assert sim.views["agent_stat"][0].tolist()[:4] == [1, 0, 3, 6]


def test_put_moves_only_what_is_held_and_partly() -> None:
    sim = world("a", "@")
    give(sim, 0, BATTERY, 2)
    assert play(sim, (PUT, 0)) == [True]
    assert (stored(sim, BATTERY), held(sim, BATTERY)) == (2, 0)
    give(sim, 0, BATTERY, 7)
    assert play(sim, (PUT, 0)) == [True]
    assert (stored(sim, BATTERY), held(sim, BATTERY)) == (2, 4), "three more came, three were taken"


def test_put_moves_only_what_fits() -> None:
    sim = world("g", "@", max_output={5: 0}, item_cap=255)
    sim.views["object_item"][0, ORE] = 254
    give(sim, 0, ORE, 5)
    assert play(sim, (PUT, 0)) == [True]
    assert stored(sim, ORE) == 255
    assert play(sim, (PUT, 0)) == [False]
    assert held(sim, ORE) == 4


def test_get_takes_what_fits_under_the_cap() -> None:
    """50 of an item, 255 hearts; each item has its own cap."""
    sim = world("m", "@", initial={2: 5})
    give(sim, 0, ORE, 47)
    give(sim, 0, BATTERY, 50)
    assert play(sim, (GET, 0)) == [True]
    assert held(sim, ORE) == 50
    assert stored(sim, ORE) == 2
    assert play(sim, (GET, 0)) == [False]
    assert sim.record["item_cap"][HEART] == 255


def test_get_takes_recipe_outputs_only_also_while_converting() -> None:
    sim = world("g", "@", initial={5: 2}, conversion_ticks={5: 9})
    give(sim, 0, ORE, 3)
    play(sim, (PUT, 0))
    play(sim, (PUT, 0))
    assert sim.views["object_phase"][0] == 1
    assert play(sim, (GET, 0)) == [True]
    assert (held(sim, BATTERY), held(sim, ORE)) == (2, 1)
    assert stored(sim, ORE) == 1, "inputs stay"
    assert play(sim, (GET, 0)) == [False]


def test_a_factory_may_hold_more_than_its_limit() -> None:
    """Total output < max_output is tested at the start only: 4 laser held, 10 more come."""
    sim = world("F", "@", initial={12: 2})
    give(sim, 0, ORE, 5)
    give(sim, 0, BATTERY, 5)
    give(sim, 0, BLUEPRINT, 1)
    play(sim, (PUT, 0))
    wait(sim, 1)
    assert (stored(sim, ARMOR), stored(sim, LASER)) == (7, 7)


def test_cooldown_zero_starts_again_at_once() -> None:
    sim = world("m", "@", cooldown={2: 0}, conversion_ticks={2: 3}, max_output={2: 100})
    wait(sim, 9)
    assert stored(sim, ORE) == 3


def test_initial_output_is_there_at_reset_and_counts_for_the_limit() -> None:
    sim = world("m", "@", initial={2: 5})
    assert stored(sim, ORE) == 5
    assert sim.views["object_phase"][0] == 0


# ---- attack and swap -----------------------------------------------------------------------------


def test_attack_freezes_robs_and_costs_a_laser() -> None:
    sim = world("@", "@")
    give(sim, 1, LASER, 2)
    give(sim, 1, ORE, 48)
    give(sim, 0, ORE, 5)
    give(sim, 0, HEART, 2)
    assert play(sim, IDLE, (ATTACK, 0)) == [False, True], "the victim loses this very turn"
    assert (held(sim, ORE, 1), held(sim, ORE, 0)) == (50, 3), "all that the attacker can carry"
    assert (held(sim, HEART, 1), held(sim, HEART, 0)) == (2, 0)
    assert held(sim, LASER, 1) == 1
    assert sim.reward.tolist() == [-2.0, 2.0]
    assert sim.views["agent_frozen"][0] == 9
    assert sim.views["agent_stat"][1, STATS.index("hits")] == 1
    assert sim.views["agent_stat"][1, STATS.index("items_stolen")] == 4
    give(sim, 0, ORE, 3)
    give(sim, 1, ORE, 0)
    assert play(sim, IDLE, (ATTACK, 0)) == [False, True]
    assert sim.views["agent_frozen"][0] == 9, "frozen afresh"
    assert held(sim, ORE, 1) == 0, "but not robbed again"
    assert play(sim, IDLE, (ATTACK, 0)) == [False, False], "no laser"
    for _ in range(8):
        assert play(sim, (ROTATE, LEFT)) == [False, True], "it thaws by one a turn, whatever it chose"
    assert play(sim, (ROTATE, LEFT)) == [True, True]


def test_armor_blocks_also_when_frozen() -> None:
    sim = world("@", "@")
    give(sim, 1, LASER, 3)
    give(sim, 0, ARMOR, 1)
    give(sim, 0, ORE, 1)
    assert play(sim, IDLE, (ATTACK, 0)) == [True, True], "a blocked attack counts as one"
    assert (held(sim, ARMOR), held(sim, ORE), held(sim, LASER, 1)) == (0, 1, 2)
    play(sim, IDLE, (ATTACK, 0))
    frozen = int(sim.views["agent_frozen"][0])
    give(sim, 0, ARMOR, 1)
    play(sim, IDLE, (ATTACK, 0))
    assert (held(sim, ARMOR), held(sim, LASER, 1)) == (0, 0)
    assert sim.views["agent_frozen"][0] == frozen - 1


@pytest.mark.parametrize("argument", range(9))
@pytest.mark.parametrize("facing", [UP, DOWN, LEFT, RIGHT])
def test_attack_scans_near_to_far_and_centre_left_right(facing: int, argument: int) -> None:
    """The argument counts from 0 over those found, in the attacker's frame; past the end it is the last."""
    ahead = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}[facing]
    left = (-ahead[1], ahead[0])
    scan = [(distance, side) for distance in (1, 2, 3) for side in (0, 1, -1)]  # side: steps to the left
    absent = {(1, 0), (2, 1)}
    rows = [["."] * 9 for _ in range(9)]
    rows[4][4] = "@"
    places = {}
    for distance, side in scan:
        at = tuple(4 + distance * ahead[axis] + side * left[axis] for axis in (0, 1))
        rows[at[0]][at[1]] = "#" if (distance, side) in absent else "@"
        if (distance, side) not in absent:
            places[len(places)] = at
    sim = world(*("".join(row) for row in rows))
    attacker = int(sim.views["cell"][4, 4]) - 2
    give(sim, attacker, LASER, 1)
    turns = [IDLE] * len(sim.reward)
    turns[attacker] = (ROTATE, facing)
    play(sim, *turns)
    turns[attacker] = (ATTACK, argument)
    assert play(sim, *turns)[attacker]
    (hit,) = np.flatnonzero(sim.views["agent_frozen"])
    assert place(sim, hit) == places[min(argument, len(places) - 1)], "walls do not shield"


def test_attack_with_nobody_ahead_fails_and_keeps_the_laser() -> None:
    sim = world("@", "@")
    give(sim, 0, LASER, 1)
    assert play(sim, (ATTACK, 0))[0] is False
    assert held(sim, LASER) == 1


def test_attacks_come_before_all_other_actions() -> None:
    """Whoever attacks acts first, so the other's move never happens."""
    for seed in range(8):
        sim = world(".@", "..", ".@", seed=seed)
        give(sim, 1, LASER, 1)
        assert play(sim, (ROTATE, DOWN), (ATTACK, 0)) == [False, True]
        assert sim.views["agent_orientation"][0] == UP


def test_swap_with_a_block() -> None:
    sim = world("b", "@", "#")
    assert play(sim, (SWAP, 0)) == [True]
    assert place(sim) == (0, 0)
    assert (sim.views["object_row"][0], sim.views["object_col"][0]) == (1, 0)
    assert sim.views["cell"][:, 0].tolist() == [2, 3, 1]
    assert play(sim, (SWAP, 0)) == [False]


def test_swap_with_frozen_agents_only() -> None:
    sim = world("@", "@")
    assert play(sim, IDLE, (SWAP, 0)) == [True, False]
    sim.views["agent_frozen"][0] = 5
    play(sim, (ROTATE, DOWN), (SWAP, 0))
    assert (place(sim, 0), place(sim, 1)) == ((1, 0), (0, 0))
    assert sim.views["agent_orientation"].tolist() == [UP, UP], "each keeps its orientation"
    assert sim.views["agent_frozen"][0] == 4, "and its timer"


def test_swap_does_not_work_on_converters_walls_or_nothing() -> None:
    for thing in "m#.":
        assert play(world(thing, "@"), (SWAP, 0)) == [False]


# ---- rewards and ends ----------------------------------------------------------------------------


def test_an_items_cap_is_that_items_own() -> None:
    """right-behaviour 19: the cap of one item does not bound the total, nor another item."""
    sim = world(
        "m@g", initial={2: 5, 5: 5}, reward_weight={ORE: 20, BATTERY: 50, HEART: 0},
        reward_cap={ORE: 60, BATTERY: 150},
    )  # fmt: skip
    play(sim, (ROTATE, LEFT))
    play(sim, (GET, 0))
    assert sim.reward[0] == np.float32(60) * np.float32(0.001)
    play(sim, (ROTATE, RIGHT))
    play(sim, (GET, 0))
    assert sim.reward[0] == np.float32(150) * np.float32(0.001), "a full ore cap takes nothing from batteries"
    play(sim, (PUT, 0))
    assert sim.reward[0] == 0, "five ores less one are still over the cap"
    give(sim, 0, ORE, 3)
    play(sim, (PUT, 0))
    assert sim.reward[0] == -np.float32(20) * np.float32(0.001), "the change counts both ways"


def test_losing_a_heart_costs() -> None:
    sim = world("T", "@")
    give(sim, 0, HEART, 1)
    play(sim, (PUT, 0))
    assert sim.reward[0] == -1
    assert sim.views["agent_stat"][0, STATS.index("hearts")] == -1


def test_group_reward_is_shared_in_float32() -> None:
    sim = world("a@@@", initial={8: 1}, group_reward_pct=0.3)
    play(sim, (ROTATE, LEFT))
    play(sim, (GET, 0))
    share, one = np.float32(0.3), np.float32(1)
    mean = one / np.float32(3)
    assert sim.reward.tolist() == [one * (one - share) + share * mean, share * mean, share * mean]


@pytest.mark.parametrize("terminal", [0, 1])
def test_the_time_limit_ends_the_episode(terminal: int) -> None:
    """A truncation (a terminal if so configured); the next call gives the new episode's first row."""
    sim = world("m", "@", max_steps=3, limit_is_terminal=terminal)
    wait(sim, 2)
    assert not sim.terminal.any()
    assert not sim.truncation.any()
    play(sim, (GET, 0))
    assert (sim.terminal[0], sim.truncation[0]) == (bool(terminal), not terminal)
    assert not sim.mask[0], "this row holds the true last observation, whose action is ignored"
    assert held(sim, ORE) == 1
    assert sim.stats[0, STATS.index("ore")] == 1
    sim.step(np.int32([[MOVE, 1]]))
    assert sim.first[0]
    assert sim.mask[0]
    assert not sim.terminal[0]
    assert not sim.truncation[0]
    assert sim.reward[0] == 0
    assert held(sim, ORE) == 0
    assert sim.views["step"] == 0
    assert sim.views["lifetime"] == 5


# ---- what agents see -----------------------------------------------------------------------------


def tokens(sim: GridSim, agent: int = 0) -> list[tuple[int, int, int]]:
    return [tuple(token) for token in sim.observe("tokens")[agent].tolist() if token[0] != 255]


def test_tokens_of_a_small_world() -> None:
    """Globals first (feature 8 … 13), then the own cell, then the others by distance; zeros are left out."""
    sim = world("m.", ".@", max_steps=10, reward_weight={ORE: 20, HEART: 1000})
    play(sim, (ROTATE, LEFT))
    assert tokens(sim) == [
        (0x55, 8, 26), (0x55, 9, ROTATE), (0x55, 10, LEFT), (0x55, 13, 0b10000010),
        (0x55, 0, 0), (0x55, 1, 0), (0x55, 4, LEFT),
        (0x44, 0, 2), (0x44, 6, 1), (0x44, 14, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("weight", "token"), [(1, 0), (4, 0), (5, 1), (14, 1), (15, 2), (1000, 100), (9000, 255), (-20, 0)]
)
def test_last_reward_token_is_rounded_and_clamped(weight: int, token: int) -> None:
    """Reward × 100, half away from zero, within 0 … 255: negative rewards are lost."""
    sim = world("m", "@", initial={2: 1}, max_output={2: 1}, reward_weight={ORE: weight})
    play(sim, (GET, 0))
    sim_tokens = [value for _, feature, value in tokens(sim) if feature == 11]
    assert sim_tokens == ([token] if token else [])


def test_completion_token() -> None:
    sim = world("@", max_steps=1000)
    seen = [sum(value for _, feature, value in tokens(sim) if feature == 8)]
    for _ in range(1000):
        wait(sim, 1)
        seen.append(int(sim.observe("dense")[0, 5, 5, 8]))
    assert seen == [round(255 * step / 1000 + 1e-9) for step in range(1001)]
