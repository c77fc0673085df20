"""Tests the grid's rules at their limits: full converters and agents, frozen targets, items worth a reward."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from metta_fast.envs.grid.env import GridSim
from tests.envs.test_grid_native import (
    ARMOR,
    ATTACK,
    BATTERY,
    GET,
    HEART,
    LASER,
    NOOP,
    ORE,
    PUT,
    ascii_sim,
    check_caches,
    play,
)  # fmt: skip


def give(sim: GridSim, agent: int, **items: int) -> None:
    """Sets an agent's items by name, and what is derived from them."""
    numbers = {"ore": ORE, "battery": BATTERY, "heart": HEART, "armor": ARMOR, "laser": LASER}
    v = sim.views
    for name, count in items.items():
        v["agent_item"][agent, numbers[name]] = count
    v["cache_agent_items"][:] = ((v["agent_item"] > 0) * (1 << np.arange(10))).sum(axis=1)


@pytest.mark.parametrize(("there", "taken"), [(0, 5), (250, 5), (251, 4), (254, 1), (255, 0)])
def test_a_converter_takes_what_fits_and_the_agent_keeps_the_rest(
    tmp_path: Path, there: int, taken: int
) -> None:
    recipes = {"altar": {"inputs": {"battery_red": 5}, "outputs": {"heart": 1}}}
    sim = ascii_sim(tmp_path, "###\n#a#\n#@#\n###\n", recipes=recipes)
    v = sim.views
    v["object_phase"][0], v["object_due"][0] = 1, 1 << 30  # busy: it uses nothing up
    v["object_item"][0, BATTERY] = there
    v["cache_object_items"][0] = (there > 0) << BATTERY
    give(sim, 0, battery=7)
    play(sim, (PUT, 0))
    assert (v["object_item"][0, BATTERY], v["agent_item"][0, BATTERY]) == (there + taken, 7 - taken)
    assert v["agent_stat"][0, 7] == (taken == 0)  # failed


@pytest.mark.parametrize("held", [0, 3, 49, 50])
def test_an_agent_takes_what_it_can_carry(tmp_path: Path, held: int) -> None:
    sim = ascii_sim(tmp_path, "###\n#m#\n#@#\n###\n")
    v = sim.views
    v["object_phase"][0], v["object_due"][0] = 1, 1 << 30  # busy: it makes no more
    v["object_item"][0, ORE] = 9
    v["cache_object_items"][0] |= 1 << ORE
    give(sim, 0, ore=held)
    play(sim, (GET, 0))
    taken = min(9, 50 - held)
    assert v["agent_item"][0, ORE] == held + taken
    assert v["agent_stat"][0, 7] == (taken == 0)


def test_a_frozen_agent_is_frozen_anew_but_not_robbed_again(tmp_path: Path) -> None:
    sim = ascii_sim(tmp_path, "#####\n#.@.#\n#...#\n#.@.#\n#####\n", freeze_duration=3)
    v = sim.views
    shoot = [(NOOP, 0), (ATTACK, 0)]
    give(sim, 0, ore=4, heart=1)
    give(sim, 1, laser=3)
    play(sim, shoot)
    assert (v["agent_item"][0, ORE], v["agent_item"][1, ORE], v["agent_item"][1, HEART]) == (0, 4, 1)
    give(sim, 0, ore=2)
    play(sim, shoot)
    assert (v["agent_item"][0, ORE], v["agent_item"][1, ORE], v["agent_frozen"][0]) == (2, 4, 2)
    play(sim, [(NOOP, 0), (NOOP, 0)], [(NOOP, 0), (NOOP, 0)])
    assert v["agent_frozen"][0] == 0
    play(sim, shoot)  # it thawed
    assert (v["agent_item"][0, ORE], v["agent_item"][1, ORE], v["agent_item"][1, LASER]) == (0, 6, 0)
    check_caches(sim)


def test_rewards_for_items_are_taken_back_in_full_and_capped_once(tmp_path: Path) -> None:
    """Weight 1 a battery, at most 3: of five, two were worth nothing, and giving those up costs nothing."""
    recipes = {"altar": {"inputs": {"battery_red": 1}, "outputs": {"heart": 1}}}
    rewards = {"battery_red": {"weight": 1.0, "cap": 3.0}}
    sim = ascii_sim(tmp_path, "###\n#a#\n#@#\n###\n", recipes=recipes, rewards=rewards)
    v = sim.views
    v["object_phase"][0], v["object_due"][0] = 1, 1 << 30
    give(sim, 0, battery=5)
    seen = []
    for _ in range(6):
        play(sim, (PUT, 0))
        seen.append(float(sim.reward[0]))
    assert seen == [0, 0, -1, -1, -1, 0]
