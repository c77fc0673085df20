"""Tests the grid's C rules: conservation, caches, simple behaviour, episode ends, batching.

The step-by-step comparison with the plain Python rules is in tests/parity/.
"""

from __future__ import annotations

import ctypes
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.contracts.env import Array, EnvBatch, EnvFactory, Rows
from metta_fast.envs.grid.config import grid_config
from metta_fast.envs.grid.env import GridFactory, GridSim
from metta_fast.envs.grid.names import ACTIONS, ITEMS, STATS, TYPES
from metta_fast.envs.grid.state import PAD, state_views
from tests.cuda.engines import ENGINES, observed_by_warps

NOOP, MOVE, ROTATE, PUT, GET, ATTACK, SWAP = range(7)
UP, DOWN, LEFT, RIGHT = range(4)
ORE, BATTERY, HEART, ARMOR, LASER = 0, 3, 6, 7, 8
# Small and busy: everything is cheap and near, so that random agents trade, shoot and steal.
BUSY = {
    "room_size": [6, 6],
    "num_agents": 6,
    "actions": list(ACTIONS),
    "max_steps": 90,
    "freeze_duration": 4,
    "objects": {
        "mine_red": 2,
        "generator_red": 2,
        "altar": 2,
        "lasery": 3,
        "armory": 2,
        "temple": 1,
        "block": 3,
    },
    "rewards": {"heart": 1.0, "ore_red": {"weight": 0.1, "cap": 0.3}, "laser": -0.05},
    "recipes": {
        "mine_red": {"cooldown": 2, "initial": 2},
        "generator_red": {"cooldown": 0},
        "altar": {"inputs": {"ore_red": 1}},
        "armory": {"inputs": {}, "cooldown": 5},
        "lasery": {"inputs": {}, "cooldown": 3, "conversion_ticks": 3},
        "temple": {"inputs": {"heart": 1}, "outputs": {"heart": 2}},
    },
}
MAPS = {
    "arena": {},
    "rooms": {"map": "rooms", "rooms": [2, 2], "room_size": [7, 6]},
    "maze": {"map": "maze", "room_size": [7, 7], "border": 3},
    "borderless": {"border": 0, "rooms": [1, 2], "groups": "per_room", "group_reward_pct": 0.5},
}


def random_actions(rng: np.random.Generator, agents: int, wild: int = 0) -> Array:
    """Mostly sensible: [agents, 2]; `wild` widens the range beyond what is legal."""
    action = rng.integers(-wild, len(ACTIONS) + wild, (agents, 2))
    usual = rng.integers(0, 4, agents) * (action[:, 0] != MOVE)
    action[:, 1] = np.where(rng.random(agents) < 0.7, usual, action[:, 1])
    return action.astype(np.int32)


def ascii_sim(tmp_path: Path, text: str, **keys: object) -> GridSim:
    path = tmp_path / "map.txt"
    path.write_text(text)
    sim = GridSim(*grid_config(map=str(path), num_agents=text.count("@"), actions=list(ACTIONS), **keys))
    sim.reset()
    return sim


def play(sim: GridSim, *turns: object) -> None:
    """One step a turn; a turn is (action, arg) for agent 0 or a list of them for all. The rest do nothing."""
    for turn in turns:
        actions = np.zeros((len(sim.reward), 2), np.int32)
        rows = turn if isinstance(turn, list) else [turn]
        actions[: len(rows)] = rows
        sim.step(actions)


def first_of(views: dict[str, Array], name: str) -> int:
    """Index of the first object of a type."""
    return int(np.flatnonzero(views["object_type"] == TYPES.index(name))[0])


def check_caches(sim: GridSim) -> None:
    """Recompute every derived byte from the rest."""
    v, n = sim.views, len(sim.reward)
    record = sim.record
    kinds = v["object_type"][: v["num_objects"]]
    dues = v["object_due"][v["object_phase"] != 0]
    assert v["cache_next_due"] == (dues.min() if len(dues) else 2**31 - 1)
    limit = int(record["max_steps"])
    assert v["cache_completion"] == (510 * int(v["step"]) + limit) // (2 * limit)
    for things in ("agent", "object"):
        expected = ((v[f"{things}_item"] > 0) * (1 << np.arange(10))).sum(axis=1)
        assert (v[f"cache_{things}_items"] == expected).all()
    cell = np.pad(v["cell"], PAD)
    bits = np.unpackbits(np.ascontiguousarray(v["cache_bits"]).view(np.uint8), axis=1, bitorder="little")
    assert (bits[:, : cell.shape[1]] == (cell != 0)).all()
    assert not bits[:, cell.shape[1] :].any()
    plane = np.zeros((*cell.shape, 3), np.int64)
    plane[cell == 1, 0] = 2
    for k in range(n):
        item = v["agent_item"][k].astype(int)
        at = v["agent_row"][k] + PAD, v["agent_col"][k] + PAD
        assert cell[at] == 2 + k
        pose = v["agent_orientation"][k] + 4 * (v["agent_frozen"][k] > 0) + 8 * min(v["agent_group"][k], 15)
        plane[at] = (1, 1 + pose, min(15, item.sum()) + 16 * min(15, item[LASER]))
    for j, kind in enumerate(kinds):
        item = v["object_item"][j].astype(int)
        gives, takes = record["recipe_out"][kind] > 0, record["recipe_in"][kind] > 0
        at = v["object_row"][j] + PAD, v["object_col"][j] + PAD
        assert cell[at] == 2 + n + j
        plane[at] = (
            kind + 1,
            v["object_phase"][j] != 0,
            min(15, item[gives].sum()) + 16 * min(15, item[takes & ~gives].sum()),
        )
    assert (plane == v["cache_plane"]).all()
    assert (cell > 1).sum() == n + v["num_objects"]


def check_padding(sim: GridSim) -> None:
    """Every byte of the state belongs to a view or is zero."""
    covered = np.zeros_like(sim.state)
    for view in state_views(sim.record, covered).values():
        view[...] = np.iinfo(view.dtype).max if view.dtype.kind == "u" else -1
    assert not sim.state[covered == 0].any()


@given(name=st.sampled_from(sorted(MAPS)), seed=st.integers(0, 2**64 - 1))
def test_items_are_conserved_and_caches_follow(name: str, seed: int) -> None:
    sim = GridSim(*grid_config(**{**BUSY, **MAPS[name]}), seed=seed)
    record, v = sim.record, sim.views
    rng = np.random.default_rng(seed)
    sim.reset()
    check_caches(sim)
    ticks = record["conversion_ticks"][v["object_type"]]
    weight, cap = record["reward_weight"].astype(int), record["reward_cap"].astype(int)
    for _ in range(200):
        before = {key: np.array(view) for key, view in v.items()}
        sim.step(random_actions(rng, len(sim.reward), wild=2))
        check_caches(sim)
        if sim.first.all():
            continue
        done = (before["object_phase"] == 1) & (before["object_due"] == v["step"])
        started = (v["object_phase"] == 1) & (v["object_due"] == v["step"] + ticks)
        change = record["recipe_out"][v["object_type"][done]].sum(axis=0) - record["recipe_in"][
            v["object_type"][started]
        ].sum(axis=0)
        hits = (v["agent_stat"] - before["agent_stat"])[:, STATS.index("hits")].sum()
        change[LASER] -= hits
        found = sum(
            view[f"{t}_item"].astype(int).sum(axis=0) * sign
            for view, sign in ((v, 1), (before, -1))
            for t in ("agent", "object")
        )
        assert 0 <= change[ARMOR] - found[ARMOR] <= hits
        change[ARMOR] = found[ARMOR]
        assert found.tolist() == change.tolist()
        assert (v["agent_item"] <= record["item_cap"]).all()
        worth = [np.minimum(weight * view["agent_item"].astype(int), cap).sum(axis=1) for view in (v, before)]
        assert (v["agent_reward"] == worth[0] - worth[1]).all()
        assert sorted(v["order"]) == list(range(len(sim.reward)))
    check_padding(sim)


def test_random_play_reaches_every_rule() -> None:
    """The conservation test means something: its world sees theft, hits, hearts and all else."""
    sim = GridSim(*grid_config(**{**BUSY, "max_steps": 20_000}), seed=5)
    rng = np.random.default_rng(5)
    sim.reset()
    for _ in range(5000):
        sim.step(random_actions(rng, len(sim.reward)))
    assert (np.abs(sim.views["agent_stat"]).sum(axis=0) > 0).all()


@pytest.mark.parametrize("kind", ["tokens", "dense", "compact"])
@pytest.mark.parametrize("engine", ENGINES)
def test_lanes_write_the_same_bytes(engine: str, kind: str) -> None:
    sim = GridSim(*grid_config(**{**BUSY, "observation": kind}), seed=2)
    rng = np.random.default_rng(2)
    sim.reset()
    for _ in range(60):
        sim.step(random_actions(rng, len(sim.reward)))
        whole = sim.observe(kind)
        assert (whole.reshape(len(whole), -1) == sim.obs).all()
        assert (observed_by_warps(engine, sim, kind, warps=2) == whole).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_past_the_last_are_dropped(engine: str) -> None:
    """As many as fit are left of 16 for each agent, whatever place of the 200 an agent's begin at."""
    sim = GridSim(*grid_config(num_agents=120, room_size=[11, 11], objects={}, max_steps=50))
    sim.reset()
    for items in (0, 1, 511, 1023):
        sim.views["agent_item"][...] = [items >> i & 1 for i in range(10)]
        sim.views["cache_agent_items"][...] = items
        tokens = sim.observe("tokens")
        assert (observed_by_warps(engine, sim, "tokens", warps=3) == tokens).all()
    assert (tokens != 255).any(axis=2).all()


def test_move_rotate_and_walls(tmp_path: Path) -> None:
    sim = ascii_sim(tmp_path, "#####\n#...#\n#.@b#\n#####\n")
    v = sim.views
    play(sim, (MOVE, 0))
    assert (v["agent_row"][0], v["agent_col"][0]) == (1, 2)
    play(sim, (MOVE, 0))  # a wall
    assert v["agent_stat"][0].tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    play(sim, (ROTATE, RIGHT), (MOVE, 1))  # backwards
    assert (v["agent_row"][0], v["agent_col"][0], v["agent_orientation"][0]) == (1, 1, RIGHT)
    play(sim, (MOVE, 2), (ROTATE, 4), (9, 0), (-1, 0), (ATTACK, 9))  # out of range: failed
    assert v["agent_stat"][0, 7] == 6
    assert (v["agent_last_action"][0], v["agent_last_arg"][0]) == (ATTACK, 9)
    play(sim, (300, -5))
    assert (v["agent_last_action"][0], v["agent_last_arg"][0]) == (255, 0)
    check_caches(sim)


def test_a_map_without_border(tmp_path: Path) -> None:
    sim = ascii_sim(tmp_path, "@.\n..\n")
    play(sim, (MOVE, 0), (ROTATE, LEFT), (MOVE, 0), (GET, 0), (SWAP, 0), (PUT, 0))
    assert (sim.views["agent_row"][0], sim.views["agent_col"][0]) == (0, 0)
    assert sim.views["agent_stat"][0, 7] == 5
    play(sim, (MOVE, 1))
    assert sim.views["agent_col"][0] == 1


def test_mine_gives_at_1_52_103(tmp_path: Path) -> None:
    sim = ascii_sim(tmp_path, "###\n#m#\n#@#\n###\n")
    given_at = []
    for step in range(1, 110):
        before = sim.views["object_item"][0, ORE].copy()
        play(sim, (NOOP, 0))
        if sim.views["object_item"][0, ORE] > before:
            given_at.append(step)
    assert given_at == [1, 52, 103]


def test_ore_to_battery_to_heart(tmp_path: Path) -> None:
    recipes = {"mine_red": {"cooldown": 0}, "generator_red": {"cooldown": 0}, "altar": {"cooldown": 2}}
    sim = ascii_sim(
        tmp_path,
        "#####\n#.m.#\n#a@g#\n#...#\n#####\n",
        recipes=recipes,
        rewards={"heart": 1, "battery_red": 0.5},
    )
    v = sim.views
    play(sim, (NOOP, 0), (NOOP, 0), (NOOP, 0), (GET, 0))
    assert v["agent_item"][0, ORE] == 4
    play(sim, (ROTATE, RIGHT), (PUT, 0), (PUT, 0), (PUT, 0), (NOOP, 0), (GET, 0))
    assert v["agent_item"][0].tolist() == [1, 0, 0, 3, 0, 0, 0, 0, 0, 0]
    assert sim.reward[0] == np.float32(1500) * np.float32(0.001)
    play(sim, (ROTATE, LEFT), (PUT, 0))
    assert sim.reward[0] == np.float32(-1500) * np.float32(0.001)
    assert (v["object_phase"][first_of(v, "altar")], v["agent_item"][0, BATTERY]) == (1, 0)
    play(sim, (GET, 0))  # ready after one tick, taken in the same step
    assert v["agent_item"][0, HEART] == 1
    assert sim.reward[0] == 1.0
    assert v["agent_stat"][0].tolist() == [1, 4, 3, 6, 0, 0, 0, 0]


def test_attack_freezes_robs_and_is_blocked(tmp_path: Path) -> None:
    sim = ascii_sim(tmp_path, "#####\n#...#\n#.@.#\n#...#\n#.@.#\n#####\n", freeze_duration=3)
    v = sim.views  # agent 0 above, agent 1 below, facing up
    v["agent_item"][1, LASER], v["agent_item"][0, ORE] = 3, 7
    v["agent_item"][0, ARMOR] = 1
    v["cache_agent_items"][:] = ((v["agent_item"] > 0) * (1 << np.arange(10))).sum(axis=1)
    shoot = [(NOOP, 0), (ATTACK, 0)]
    play(sim, shoot)  # blocked
    assert (v["agent_item"][0, ARMOR], v["agent_item"][1, LASER], v["agent_frozen"][0]) == (0, 2, 0)
    play(sim, shoot)  # hit: frozen for 3, of which the target's own turn takes one
    assert (v["agent_item"][0, ORE], v["agent_item"][1, ORE], v["agent_frozen"][0]) == (0, 7, 2)
    assert v["agent_stat"][1, STATS.index("items_stolen")] == 7
    play(sim, [(MOVE, 0), (NOOP, 0)])
    assert (v["agent_row"][0], v["agent_frozen"][0]) == (2, 1)
    assert sim.mask.all(), "a frozen agent's rows are ordinary rows"
    play(sim, shoot)  # frozen afresh
    assert (v["agent_frozen"][0], v["agent_item"][1, LASER]) == (2, 0)
    play(sim, shoot)  # no laser left
    assert v["agent_stat"][1, STATS.index("hits")] == 3
    assert v["agent_stat"][1, STATS.index("failed")] == 1
    check_caches(sim)


def test_attack_argument_picks_by_distance_then_centre_left_right(tmp_path: Path) -> None:
    text = "#####\n#@@@#\n#...#\n#@.@#\n#.@.#\n#####\n"  # in scan order; the attacker is 5, facing up
    expected = [3, 4, 1, 0, 2, 2, 2]  # left, right at distance 1; centre, left, right at 3; then the last
    for argument, target in enumerate(expected):
        sim = ascii_sim(tmp_path, text)
        sim.views["agent_item"][5, LASER] = 1
        sim.views["cache_agent_items"][5] = 1 << LASER
        play(sim, [(NOOP, 0)] * 5 + [(ATTACK, argument)])
        assert np.flatnonzero(sim.views["agent_frozen"]).tolist() == [target]


def test_swap_takes_blocks_and_frozen_agents_only(tmp_path: Path) -> None:
    sim = ascii_sim(tmp_path, "###\n#b#\n#@#\n#@#\n###\n")
    v = sim.views
    play(sim, (SWAP, 0))
    assert (v["agent_row"][0], v["object_row"][0]) == (1, 2)
    play(sim, [(ROTATE, DOWN), (SWAP, 0)], [(NOOP, 0), (MOVE, 0)])
    assert v["agent_row"].tolist() == [1, 2]
    play(sim, (SWAP, 0))  # not frozen
    assert v["agent_row"].tolist() == [1, 2]
    v["agent_frozen"][1] = 9
    play(sim, (SWAP, 0))
    assert v["agent_row"].tolist() == [2, 1]
    assert (v["agent_orientation"].tolist(), v["agent_frozen"][1]) == ([DOWN, UP], 8)


def test_disabled_actions_fail() -> None:
    sim = GridSim(*grid_config(actions=["noop"]))
    sim.reset()
    play(sim, (ROTATE, 1), (MOVE, 1), (7, 1), (NOOP, 0))
    assert sim.views["agent_stat"][0].tolist() == [0, 0, 0, 0, 0, 0, 0, 3]
    assert sim.views["agent_orientation"][0] == UP


@pytest.mark.parametrize("terminal", [False, True])
def test_episode_ends_are_next_step(terminal: bool) -> None:
    sim = GridSim(*grid_config(max_steps=3, limit_is_terminal=terminal))
    sim.reset()
    seen = []
    for _ in range(8):
        flags = (bool(flag.all()) for flag in (sim.mask, sim.first, sim.terminal, sim.truncation))
        seen.append((*flags, int(sim.views["step"]), int(sim.views["episode"])))
        play(sim, (MOVE, 0))
    row, first = (True, False, False, False), (True, True, False, False)
    last = (False, False, terminal, not terminal)
    assert seen == [
        (*first, 0, 0),
        (*row, 1, 0),
        (*row, 2, 0),
        (*last, 3, 0),
        (*first, 0, 1),
        (*row, 1, 1),
        (*row, 2, 1),
        (*last, 3, 1),
    ]


def test_stats_come_at_the_end() -> None:
    sim = GridSim(*grid_config(max_steps=4))
    sim.reset()
    play(sim, (ROTATE, 1), (MOVE, 7), (MOVE, 9), (NOOP, 0))
    assert sim.truncation.all()
    assert (sim.stats == sim.views["agent_stat"]).all()
    assert sim.stats[0, STATS.index("failed")] == 2
    play(sim, (NOOP, 0))
    assert sim.reward.tolist() == [0.0] * 4


def test_maps_do_not_depend_on_history() -> None:
    sims = [GridSim(*grid_config(max_steps=5), seed=9, env_id=2) for _ in range(2)]
    for sim in sims:
        sim.reset()
    rng = np.random.default_rng(0)
    cells = [sims[0].views["cell"].copy()]
    for _ in range(18):
        sims[0].step(random_actions(rng, 4))
        sims[1].step(np.zeros((4, 2), np.int32))
        if sims[0].first.all():
            assert (sims[0].views["cell"] == sims[1].views["cell"]).all()
            cells.append(sims[0].views["cell"].copy())
    assert len({c.tobytes() for c in cells}) == 4


def components(open_cells: Array) -> int:
    """Number of connected regions of a bool map."""
    left, found = {tuple(at) for at in np.argwhere(open_cells)}, 0
    while left:
        found += 1
        todo = [left.pop()]
        while todo:
            row, col = todo.pop()
            for at in ((row + 1, col), (row - 1, col), (row, col + 1), (row, col - 1)):
                if at in left:
                    left.remove(at)
                    todo.append(at)
    return found


@given(seed=st.integers(0, 2**64 - 1))
def test_maze_is_perfect(seed: int) -> None:
    sim = GridSim(*grid_config(map="maze", room_size=[6, 9], objects={"mine_red": 3, "altar": 2}), seed=seed)
    sim.reset()
    cell = sim.views["cell"]
    assert components(cell != 1) == 1
    assert (cell != 1).sum() == 2 * 6 * 9 - 1  # a tree: cells and the walls opened between them
    objects = np.argwhere(cell >= 2 + 4)
    assert len(objects) == sim.views["num_objects"] > 0
    for row, col in objects:  # in dead ends
        assert sum(cell[row + dr, col + dc] != 1 for dr, dc in ((0, 1), (0, -1), (1, 0), (-1, 0))) == 1


@given(seed=st.integers(0, 2**64 - 1))
def test_rooms_are_joined_by_clear_doors(seed: int) -> None:
    config = grid_config(map="rooms", rooms=[2, 3], room_size=[4, 4], num_agents=8, objects={"block": 5})
    sim = GridSim(*config, seed=seed)
    sim.reset()
    cell = sim.views["cell"]
    assert components(cell != 1) == 1
    inside = cell[1:-1, 1:-1]
    doors = [(r, c) for r, c in np.argwhere(inside != 1) if r % 5 == 4 or c % 5 == 4]
    assert len(doors) == 2 * 2 + 3
    for r, c in doors:
        assert inside[r, c] == 0
        sides = [(r - 1, c), (r + 1, c)] if r % 5 == 4 else [(r, c - 1), (r, c + 1)]
        assert all(inside[at] == 0 for at in sides)
    assert sim.views["num_objects"] == 6 * 5
    check_caches(sim)


def test_groups_and_agents_spread_over_rooms() -> None:
    sim = GridSim(*grid_config(rooms=[2, 2], room_size=[5, 5], num_agents=6, groups="per_room", objects={}))
    sim.reset()
    assert sim.views["agent_group"].tolist() == [0, 0, 1, 1, 2, 3]
    assert ((sim.views["agent_row"] > 5) * 2 + (sim.views["agent_col"] > 5)).tolist() == [0, 0, 1, 1, 2, 3]


def test_group_sharing() -> None:
    sim = GridSim(
        *grid_config(
            num_agents=3,
            group_reward_pct=0.25,
            room_size=[4, 4],
            objects={"mine_red": 13},
            rewards={"ore_red": 0.3},
        )
    )
    sim.reset()
    play(sim, (NOOP, 0), [(GET, 0)] * 3)
    r = sim.views["agent_reward"].astype(np.float32) * np.float32(0.001)
    assert r.any()
    mean = ((r[0] + r[1]) + r[2]) / np.float32(3)
    assert (sim.reward == r * np.float32(0.75) + np.float32(0.25) * mean).all()


# ---- batches ----


def make_rows(factory: GridFactory, envs: int) -> Rows:
    n, leaf = envs * factory.spec.agents_per_env, factory.spec.obs["obs"]
    return Rows(
        {"obs": np.full((n, *leaf.shape), 7, np.uint8)},
        np.zeros((n, 2), np.int32),
        np.zeros(n, np.float32),
        *(np.zeros(n, np.bool_) for _ in range(4)),
        np.zeros((n, len(STATS)), np.float32),
    )


def digest(rows: Rows) -> bytes:
    return b"".join([rows.obs["obs"].tobytes(), *(a.tobytes() for a in rows[2:])])


def test_factory_fulfils_the_contract_and_pickles() -> None:
    factory = pickle.loads(pickle.dumps(GridFactory(observation="tokens", num_agents=2)))
    assert isinstance(factory, EnvFactory)
    assert isinstance(factory.make_batch(0, 8, 8), EnvBatch)
    assert factory.spec.obs["obs"].shape == (200, 3)
    assert factory.spec.action.nvec == (9, 9)
    assert factory.spec.stats == STATS
    assert len(ITEMS) == 10


def test_batching_changes_nothing() -> None:
    factory = GridFactory(max_steps=20, num_agents=3)
    whole, split, threads = (make_rows(factory, 7) for _ in range(3))
    batches = [(factory.make_batch(0, 7, 7), whole)]
    for a, b in ((0, 2), (2, 6), (6, 7)):
        batches.append((factory.make_batch(a, b - a, 7), split.slice(3 * a, 3 * b)))
    for batch, rows in batches:
        batch.bind(rows)
        batch.reset(2**63 + 5, stagger=True)
    native = factory.make_batch(0, 7, 7)
    native.bind(threads)
    native.reset(2**63 + 5, stagger=True)
    address, context, count = native.native_job()
    step = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(address)
    assert count == 7
    rng = np.random.default_rng(1)
    ended = masked = 0
    for _ in range(50):
        assert digest(whole) == digest(split) == digest(threads)
        actions = random_actions(rng, 21)
        for rows in (whole, split, threads):
            rows.action[...] = actions
        for batch, _ in batches:
            batch.step()
        step(context, 4, 7)
        step(context, 0, 4)
        ended += whole.truncation.sum()
        masked += (~whole.mask).sum()
    assert ended == masked > 0


def test_stagger_spreads_first_episodes_only() -> None:
    factory = GridFactory(max_steps=50, num_agents=1)
    batch, rows = factory.make_batch(0, 10, 10), make_rows(factory, 10)
    batch.bind(rows)
    batch.reset(0, stagger=True)
    views = [state_views(factory.record, state) for state in batch.states]
    assert [int(v["step"]) for v in views] == [5 * i for i in range(10)]
    for _ in range(6):
        batch.step()
    assert int(views[9]["step"]) == 0
    assert int(views[9]["episode"]) == 1
    batch.reset(0)
    assert [int(v["step"]) for v in views] == [0] * 10


def test_state_dict_goes_on_bit_for_bit() -> None:
    factory = GridFactory(max_steps=15)
    first, rows = factory.make_batch(0, 4, 4), make_rows(factory, 4)
    first.bind(rows)
    first.reset(3)
    rng = np.random.default_rng(3)
    tape = [random_actions(rng, 16) for _ in range(40)]
    for actions in tape[:20]:
        rows.action[...] = actions
        first.step()
    saved = pickle.loads(pickle.dumps(first.state_dict()))
    second, other = factory.make_batch(0, 4, 4), make_rows(factory, 4)
    second.bind(other)
    second.load_state_dict(saved)
    for actions in tape[20:]:
        rows.action[...] = actions
        other.action[...] = actions
        first.step()
        second.step()
        assert rows.obs["obs"].tobytes() == other.obs["obs"].tobytes()
        assert rows.reward.tobytes() == other.reward.tobytes()
    with pytest.raises(ValueError, match="another grid configuration"):
        factory.make_batch(0, 2, 2).load_state_dict(saved)


def test_misuse_is_named() -> None:
    factory = GridFactory()
    batch, rows = factory.make_batch(0, 2, 2), make_rows(factory, 2)
    with pytest.raises(RuntimeError, match="bind"):
        batch.reset(0)
    with pytest.raises(ValueError, match=r"rows\.obs"):
        batch.bind(rows._replace(obs={"obs": rows.obs["obs"][:4]}))
    with pytest.raises(ValueError, match=r"rows\.action"):
        batch.bind(rows._replace(action=rows.action.astype(np.int64)))
    with pytest.raises(ValueError, match="contiguous"):
        batch.bind(rows._replace(action=np.zeros((2, 8), np.int32).T))
    batch.bind(rows)
    with pytest.raises(RuntimeError, match="reset"):
        batch.step()
    with pytest.raises(ValueError, match="not among"):
        factory.make_batch(1, 2, 2)
