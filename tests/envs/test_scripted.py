"""Tests the scripted player: it follows the rules, plays well, and does not get stuck."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from metta_fast.contracts.env import EVAL_SEED_BIT
from metta_fast.contracts.errors import UserError
from metta_fast.envs.grid.config import grid_config
from metta_fast.envs.grid.env import GridSim
from metta_fast.envs.grid.names import MAP_CHARACTERS
from metta_fast.envs.grid.scripted.agent import ScriptedAgent
from metta_fast.envs.grid.scripted.paths import FAR, Paths
from tests.parity.grid_cases import record


def hearts(sims: list[GridSim]) -> np.ndarray:
    """Hearts per agent of each env, over one whole episode played by the scripted agent."""
    agent = ScriptedAgent(sims[0].record)
    for sim in sims:
        sim.reset()
    agents = len(sims[0].reward)
    for _ in range(int(sims[0].record["max_steps"])):
        actions = agent.act([sim.views for sim in sims])
        for number, sim in enumerate(sims):
            sim.step(actions[number * agents : (number + 1) * agents])
    assert all(sim.truncation.all() for sim in sims)
    return np.array([sim.stats[:, 0].mean() for sim in sims])


def unseen(envs: int, **keys: Any) -> list[GridSim]:
    config, table = grid_config(**keys)
    return [GridSim(config, table, seed=EVAL_SEED_BIT, env_id=number) for number in range(envs)]


def drawn(*rows: str, **changes: Any) -> GridSim:
    table = np.array([[[MAP_CHARACTERS[character] for character in row] for row in rows]], np.uint8)
    config = record(
        map_kind=0, num_maps=1, num_agents=int((table == 0).sum()), height=len(rows), width=len(rows[0]),
        max_objects=int(((table >= 2) & (table < 255)).sum()), border=0, **changes,
    )  # fmt: skip
    return GridSim(config, table)


def test_score_on_unseen_maps_and_its_speed() -> None:
    """`grid`: four mines give at most 80 ores an episode, so 26 hearts, 6.5 an agent."""
    start = time.process_time()
    found = hearts(unseen(12))
    assert found.mean() > 6.0
    assert found.min() > 5, "agents that meet must not lock up"
    assert found.max() <= 6.5
    assert time.process_time() - start < 12, "256 envs must take no more than some minutes"


def test_score_alone() -> None:
    """`grid_solo`: one generator gives at most 38 or 39 batteries, so 12 or 13 hearts."""
    sims = unseen(
        4, num_agents=1, room_size=[10, 10], objects={"mine_red": 2, "generator_red": 1, "altar": 1}
    )
    assert hearts(sims).mean() >= 11.5


def test_it_finds_its_way_in_mazes_and_through_doors() -> None:
    maze = unseen(
        8, map="maze", room_size=[6, 6], num_agents=3, objects={"mine_red": 2, "generator_red": 1, "altar": 1}
    )
    possible = [sim for sim in maze if starts_with_all(sim)]
    assert hearts(possible).min() > 0.5, "in corridors agents must let each other pass"
    rooms = unseen(
        3,
        map="rooms",
        rooms=[2, 2],
        room_size=[7, 7],
        objects={"mine_red": 1, "generator_red": 1, "altar": 1},
    )
    assert hearts(rooms).min() > 4


def starts_with_all(sim: GridSim) -> bool:
    """Whether the map has a mine, a generator and an altar (a maze with few dead ends drops some)."""
    sim.reset()
    return {2, 5, 8} <= set(sim.views["object_type"].tolist())


def test_one_corridor() -> None:
    """Mine at one end, generator and altar at the other, one bay to pass in: two agents must not lock up."""
    found = hearts([drawn("###########", "#m.@...@.g#", "#####.##.a#", "###########", max_steps=600)])
    assert found[0] > 1


def test_it_swaps_blocks_out_of_its_way_only_if_it_may() -> None:
    walled = ("#######", "#m@b.g#", "####.a#", "#######")
    assert hearts([drawn(*walled, max_steps=400)])[0] > 1
    assert hearts([drawn(*walled, max_steps=400, actions_enabled=0b100111111)])[0] == 0


def test_nothing_to_do_is_no_error() -> None:
    """No altar, or all walled in: it stands still."""
    assert hearts([drawn("m.@.g", max_steps=100)])[0] == 0
    assert hearts([drawn("#@#m#g#a", max_steps=60)])[0] == 0


def test_it_follows_episodes_and_a_changed_recipe() -> None:
    """Blue ore and two batteries a heart; the second episode is played like the first."""
    config, _ = grid_config(
        num_agents=2, room_size=[8, 8], max_steps=300,
        objects={"mine_blue": 3, "generator_blue": 2, "altar": 1},
        recipes={"altar": {"inputs": {"battery_red": 0, "battery_blue": 2}}},
    )  # fmt: skip
    sim, agent = GridSim(config, seed=1), ScriptedAgent(config)
    sim.reset()
    got = []
    for _ in range(602):
        sim.step(agent.act([sim.views]))
        if sim.truncation.any():
            got.append(sim.stats[:, 0].sum())
    assert len(got) == 2
    assert min(got) >= 3


def test_recipes_without_a_chain_are_refused_with_the_cure() -> None:
    config, _ = grid_config(recipes={"altar": {"inputs": {"battery_red": 3, "ore_red": 1}}})
    with pytest.raises(UserError, match="recipes"):
        ScriptedAgent(config)


def test_same_maps_same_score() -> None:
    """It draws nothing at random: two runs agree exactly."""
    first, second = (hearts(unseen(2, max_steps=300)).tolist() for _ in range(2))
    assert first == second


def test_distances_count_turns() -> None:
    """Facing up at the left end of a 1×4 floor, the thing at the right: three moves and one turn."""
    paths = Paths(np.array([[True, True, True, True, False]]), [(0, 4)])
    start = paths.width + 1
    field = paths.fields[0]
    assert [field[turn * paths.area + start] for turn in range(4)] == [4, 4, 4, 3]
    assert field[3 * paths.area + start + 3] == 0
    walled = Paths(np.array([[True, False, True, False]]), [(0, 3)])
    assert walled.fields[0][walled.width + 1] == FAR
