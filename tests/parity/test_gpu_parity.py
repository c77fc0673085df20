"""Compares the GPU's kernels with the CPU's code bit by bit: state, observations, rewards, flags, stats.

python -m pytest tests/parity/test_gpu_parity.py            # emulated: few small envs
python -m pytest -m gpu tests/parity/test_gpu_parity.py     # on a card: thousands
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metta_fast.envs.grid.env import GridFactory
from metta_fast.envs.grid.names import ACTIONS, ITEMS, STATS
from metta_fast.envs.grid.state import state_views
from tests.cuda.engines import ENGINES, RecordFactory, Twins, busy_actions, needs_card, needs_compiler
from tests.parity.grid_cases import Case, cases

ASCII = """
#########
#@.m.g..#
#.@.L.bb#
#..A..@.#
#########

#######
#@m@.a#
#.L..b#
#@A.#.#
"""
CROWD = {
    "mine_red": 2, "mine_blue": 1, "generator_red": 1, "altar": 1, "armory": 1, "lasery": 1, "temple": 1,
    "wall": 3, "block": 2,
}  # fmt: skip
BUILDERS = {
    "arena": {"map": "arena", "num_agents": 4, "room_size": [7, 6], "objects": CROWD},
    "arenas": {
        "map": "arena", "num_agents": 7, "rooms": [2, 2], "room_size": [5, 6], "border": 3, "objects": CROWD,
        "groups": "per_room",
    },
    "rooms": {
        "map": "rooms", "num_agents": 5, "rooms": [2, 3], "room_size": [5, 5], "objects": CROWD,
        "groups": "per_room",
    },
    "maze": {"map": "maze", "num_agents": 5, "room_size": [5, 21], "objects": CROWD, "border": 2},
    "table": {"map": "maps.txt", "num_agents": 3},
}  # fmt: skip
STOCK = {
    name: {"initial": 3, "cooldown": 2, "conversion_ticks": 2} for name in ("mine_red", "armory", "lasery")
}
RULES = {
    "classic": {"max_steps": 23},
    "busy": {
        "max_steps": 31, "recipes": {**STOCK, "altar": {"inputs": {"ore_red": 1}, "cooldown": 0, "max_output": 9}},
        "rewards": {name: {"weight": 0.033 * (i + 1), "cap": 0.1 * (i + 1)} for i, name in enumerate(ITEMS)},
        "actions": list(ACTIONS), "freeze_duration": 3,
    },
    "shared": {
        "max_steps": 17, "recipes": STOCK, "group_reward_pct": 0.3, "limit_is_terminal": True,
        "rewards": {"ore_red": 0.7, "laser": -0.333, "armor": 0.1, "heart": 1.0}, "freeze_duration": 0,
    },
}  # fmt: skip


@pytest.fixture
def factory_for(tmp_path, monkeypatch):
    (tmp_path / "maps.txt").write_text(ASCII.strip() + "\n")
    monkeypatch.chdir(tmp_path)
    return lambda builder, rules, observation: GridFactory(
        observation=observation, **BUILDERS[builder], **RULES[rules]
    )


def play(twins: Twins, seed: int, steps: int, *, stagger: bool = False, every: int = 1) -> None:
    """`every`: states are compared at each so-many-th step."""
    rng = np.random.default_rng(seed)
    twins.reset(seed << 40 | 5, stagger=stagger)
    for step in range(steps):
        twins.step(busy_actions(rng, twins.vec.num_agents), states=step % every == 0 or step == steps - 1)


@pytest.mark.parametrize("observation", ["tokens", "dense", "compact"])
@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_episodes_are_the_cpus(engine, builder, observation, factory_for) -> None:
    """Two episodes and more of every builder, observation and set of rules, in both shapes of kernels."""
    envs, steps = (3, 40) if engine == "emulated" else (2048, 70)
    for i, rules in enumerate(RULES):
        factory = factory_for(builder, rules, observation)
        shape = {"shape": "split"} if i == 1 else {"shape": "warp", "warps": 1 + i}
        play(Twins(engine, factory, envs, **shape), i + 1, steps, every=1 if engine == "emulated" else 8)


@pytest.mark.parametrize("engine", ENGINES)
def test_staggered_first_episodes(engine, factory_for) -> None:
    envs = 5 if engine == "emulated" else 4096
    play(Twins(engine, factory_for("arena", "busy", "compact"), envs), 9, 40, stagger=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_large_maps(engine) -> None:
    """62 × 62 cells in four rooms, 24 agents; a wide maze: more cells, objects and words than lanes."""
    counts = {"mine_red": 40, "generator_red": 5, "altar": 5, "wall": 60, "block": 20}
    for keys in (
        {"rooms": [2, 2], "room_size": [25, 25], "border": 6, "num_agents": 24, "groups": "per_room"},
        {"map": "maze", "room_size": [6, 90], "num_agents": 40},
        {"map": "rooms", "rooms": [1, 3], "room_size": [40, 35], "num_agents": 2},
    ):
        factory = GridFactory(objects=counts, max_steps=6, **keys)
        play(Twins(engine, factory, 2 if engine == "emulated" else 300, warps=4), 3, 9)


@pytest.mark.parametrize("agents", [5, 31, 40])
@pytest.mark.parametrize("engine", ENGINES)
def test_turns_that_meet(engine, agents) -> None:
    """So crowded that most turns depend on others: moves after one another, swaps with those that were just moved or
    thaw, two at one converter, robbers robbed; fewer turns than lanes, and more."""
    factory = GridFactory(
        num_agents=agents, room_size=[5, agents // 3 + 4], objects={"mine_red": 4, "lasery": 6, "block": 2},
        recipes={"mine_red": {"initial": 9, "cooldown": 1}, "lasery": {"inputs": {}, "initial": 9, "max_output": 20}},
        actions=list(ACTIONS), freeze_duration=3, max_steps=25, observation="tokens",
    )  # fmt: skip
    twins = Twins(engine, factory, 3 if engine == "emulated" else 500)
    rng = np.random.default_rng(agents)
    twins.reset(agents)
    for step in range(24):
        actions = busy_actions(rng, twins.vec.num_agents)
        often = rng.random(len(actions)) < 0.6  # move, trade, attack, swap
        actions[often] = np.stack(
            [rng.choice([1, 3, 4, 5, 6, 6], often.sum()), rng.integers(0, 2, often.sum())], 1
        )
        twins.step(actions, states=engine == "emulated" or step % 8 == 7)
    stats = sum(state_views(factory.record, state)["agent_stat"].sum(0) for state in twins.batch.states)
    assert (stats[[STATS.index(name) for name in ("hits", "moves")]] > 0).all(), stats


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("max_steps", [1, 2, 5])
@pytest.mark.parametrize("engine", ENGINES)
def test_short_episodes_and_resumes(engine, max_steps, builder, factory_for, monkeypatch) -> None:
    """Envs end again as soon as they can after a new map was taken over; a vector that goes on in the middle, and one
    that is reset, have none of the maps built before."""
    monkeypatch.setitem(RULES, "short", {**RULES["busy"], "max_steps": max_steps})
    for shape in ({"shape": "warp"}, {"shape": "split"}):
        twins = Twins(
            engine, factory_for(builder, "short", "compact"), 3 if engine == "emulated" else 999, **shape
        )
        rng = np.random.default_rng(max_steps)
        for seed in (7, 8):
            twins.reset(seed, stagger=True)
            for step in range(9):
                if step in (4, 5):
                    twins.resume()
                twins.step(busy_actions(rng, twins.vec.num_agents))


def check(engine: str, case: Case, envs: int, actor_seed: int, steps: int) -> None:
    """With resumes and maps built before they are due now and then."""
    twins = Twins(engine, RecordFactory(case.config, case.table), envs)
    rng = np.random.default_rng(actor_seed)
    twins.reset(case.seed)
    for _ in range(steps):
        if rng.random() < 0.1 and twins.t % twins.buffers.horizon == 0:
            twins.resume()
        twins.step(busy_actions(rng, twins.vec.num_agents), build=rng.random() < 0.2)


@needs_compiler
@settings(max_examples=15)
@given(cases(), st.integers(0, 2**32 - 1))
def test_any_configuration_emulated(case: Case, actor_seed: int) -> None:
    check("emulated", case, 2, actor_seed, 12)


@pytest.mark.gpu
@needs_card
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.integers(0, 2**32 - 1))
def test_any_configuration_on_a_card(case: Case, actor_seed: int) -> None:
    check("card", case, 200, actor_seed, 30)
