"""Compares rows of our vector with the package's own simulator and wrapper, step by step, for a tape of actions."""

from __future__ import annotations

import random

import numpy as np
import pytest
from mettagrid.builder.envs import make_arena, make_assembly_lines
from mettagrid.config.mettagrid_config import GridObjectConfig, MettaGridConfig
from mettagrid.config.vibes import VIBES
from mettagrid.envs.stats_tracker import StatsTracker
from mettagrid.simulator import Simulator
from mettagrid.simulator.simulator import Buffers
from mettagrid.util.stats_writer import NoopStatsWriter

from metta_fast.contracts.vector import WorkerError
from metta_fast.envs.mettagrid.factory import MettaGridFactory
from metta_fast.envs.mettagrid.game import episode_seeds
from metta_fast.envs.mettagrid.recipes import arena
from metta_fast.vector import make_vector

STEPS = 12
SEED = 7


def chain(num_agents=3, map_seed=5, **more):
    config = arena(
        num_agents, max_steps=STEPS, width=8, height=8, mines=8, generators=3, altars=2, walls=2, **more
    )
    config.game.map_builder.seed = map_seed
    return config


def vibing(num_agents=2):
    config = MettaGridConfig.EmptyRoom(num_agents=num_agents, width=6, height=6)
    config.game.actions.change_vibe.vibes = list(VIBES[:4])
    config.game = type(config.game)(**config.game.model_dump(exclude={"vibe_names"}))
    config.game.max_steps, config.game.map_builder.seed = STEPS, 3
    return config


def tape_of(factory, steps, envs=1, seed=0):
    nvec = factory.spec.action.nvec
    shape = steps, envs * factory.spec.agents_per_env, len(nvec)
    return np.random.default_rng(seed).integers(0, nvec, shape).astype(np.int32)


def rows_of(factory, tape, envs=1, **how):
    """[steps + 1] of (obs, reward, terminal, truncation, mask, reset), and the statistics."""
    found = []
    with make_vector(factory, envs, **how) as vec:
        vec.async_reset(SEED)
        for actions in [*tape, None]:
            blocks = [vec.recv() for _ in range(how.get("num_blocks", 1))]
            rows = vec.rows
            fields = (rows.obs["obs"], rows.reward, rows.terminal, rows.truncation, rows.mask, rows.reset)
            found.append([field.copy() for field in fields])
            if actions is not None:
                for block in blocks:
                    vec.send(block, actions[block.start : block.stop])
        stats = vec.info_stats()
    return found, stats


def simulation(config, episode, simulator=None):
    """The package's own simulation of this episode of environment 0. Its map's seed is that of the config + episode."""
    n, obs = config.game.num_agents, config.game.obs
    flags = [np.zeros(n, bool) for _ in range(3)]
    buffers = Buffers(
        np.zeros((n, obs.num_tokens, 3), np.uint8), *flags[:2], np.zeros(n, np.float32), flags[2],
        np.zeros(n, np.int32), np.zeros(n, np.int32), np.zeros(n, np.int32),
    )  # fmt: skip
    config = config.model_copy(deep=True)
    config.game.episode_truncates = True
    simulator = simulator or Simulator()
    simulator._map_seed_offset = episode
    return simulator.new_simulation(config, episode_seeds(SEED, 0, episode)[0], buffers)


def act(sim, agent, chosen, factory):
    sim.agent(agent).set_action(factory.action_names[chosen[0]])
    if len(chosen) > 1 and chosen[1]:
        vibe = factory.vibe_names[chosen[1] - 1]
        sim._c_sim.vibe_actions()[agent] = sim.vibe_action_ids[vibe]


@pytest.mark.parametrize("make", [chain, vibing, lambda: chain(1)])
def test_rows_are_those_of_the_packages_own_simulation(make):
    config = make()
    factory = MettaGridFactory(config)
    tape = tape_of(factory, 2 * STEPS + 5)
    found, _ = rows_of(factory, tape)
    rows = iter(found)
    actions = iter(tape)
    for episode in range(2):
        sim = simulation(config, episode)
        obs, reward, terminal, truncation, mask, reset = next(rows)
        assert np.array_equal(obs, sim._c_sim.observations())
        assert not reward.any()
        assert not terminal.any()
        assert not truncation.any()
        assert mask.all()
        assert reset.all()
        for step in range(1, STEPS + 1):
            for agent, chosen in enumerate(next(actions)):
                act(sim, agent, chosen, factory)
            sim.step()
            obs, reward, terminal, truncation, mask, reset = next(rows)
            assert np.array_equal(obs, sim._c_sim.observations()), step
            assert np.array_equal(reward, sim._c_sim.rewards())
            assert not terminal.any()
            assert not reset.any()
            assert truncation.all() == sim.is_done() == (step == STEPS)
            assert mask.all() != sim.is_done()
        next(actions)  # ignored: the next row is a new episode's first


def test_rewards_of_the_chain_reach_the_rows():
    factory = MettaGridFactory(chain())
    found, _ = rows_of(factory, tape_of(factory, 4 * STEPS))
    assert sum(row[1].sum() for row in found) > 0


def test_the_wrapper_gives_the_same_steps():
    pytest.importorskip("pufferlib")
    from mettagrid.envs.mettagrid_puffer_env import MettaGridPufferEnv

    config = chain()
    factory = MettaGridFactory(config, limit_is_terminal=True)
    tape = tape_of(factory, STEPS)
    found, _ = rows_of(factory, tape)
    simulator = Simulator()
    simulator._map_seed_offset = -1  # the constructor builds a map too
    env = MettaGridPufferEnv(simulator, config, buf=None, seed=episode_seeds(SEED, 0, 0)[0])
    obs, _ = env.reset()
    assert np.array_equal(found[0][0], obs)
    for actions, (seen, reward, terminal, *_) in zip(tape, found[1:]):
        obs, rewards, terminals, *_ = env.step(actions[:, 0])
        assert np.array_equal(seen, obs)
        assert np.array_equal(reward, rewards)
        assert np.array_equal(terminal, terminals)


@pytest.mark.parametrize(
    "how",
    [
        {"backend": "threads", "num_threads": 2, "num_blocks": 2},
        {"backend": "workers", "num_workers": 2, "num_blocks": 2},
    ],
)
def test_every_backend_gives_the_same_bytes(how):
    config = chain(map_seed=None)
    factory = MettaGridFactory(config)
    tape = tape_of(factory, STEPS + 4, envs=2)
    serial, stats = rows_of(factory, tape, envs=2, backend="serial")
    other, others = rows_of(factory, tape, envs=2, **how)
    for ours, theirs in zip(serial, other):
        for a, b in zip(ours, theirs):
            assert np.array_equal(a, b)
    assert stats == others


def test_statistics_are_those_of_the_packages_tracker():
    config = chain()
    factory = MettaGridFactory(config)
    tape = tape_of(factory, STEPS)
    _, stats = rows_of(factory, tape)
    simulator = Simulator()
    simulator.add_event_handler(StatsTracker(NoopStatsWriter()))
    sim = simulation(config, 0, simulator)
    for actions in tape:
        for agent, chosen in enumerate(actions):
            act(sim, agent, chosen, factory)
        sim.step()
    infos = sim._context["infos"]
    wanted = {f"{part}/{name}": value for part in ("agent", "game") for name, value in infos[part].items()}
    assert stats.keys() == wanted.keys()
    assert stats == pytest.approx(wanted)


def first_rows(config, seed):
    factory = MettaGridFactory(config)
    with make_vector(factory, 3) as vec:
        vec.async_reset(seed)
        vec.recv()
        return [part.tobytes() for part in np.split(vec.rows.obs["obs"].copy(), 3)]


def lines():
    station = {"station": GridObjectConfig(name="station")}
    return make_assembly_lines(2, 9, station, {"station": 3}, terrain="dense", width=9, height=9)


@pytest.mark.parametrize("make", [lambda: chain(map_seed=None), lines])
def test_maps_depend_on_the_seed_alone(make):
    state = random.getstate()
    one = first_rows(make(), 1)
    random.seed(5)
    assert first_rows(make(), 1) == one
    assert len({*one, *first_rows(make(), 2)}) == 6
    random.setstate(state)


def test_a_game_that_ends_by_a_statistic():
    config = chain()
    config.game.end_episode_on_game_stats = {"tokens_written": 1.0}
    found, _ = rows_of(MettaGridFactory(config), tape_of(MettaGridFactory(config), 3))
    assert [row[3].all() for row in found] == [False, True, False, True]
    assert [row[5].all() for row in found] == [True, False, True, False]


def test_the_limit_may_be_a_terminal():
    factory = MettaGridFactory(chain(), limit_is_terminal=True)
    found, _ = rows_of(factory, tape_of(factory, STEPS))
    assert found[-1][2].all()
    assert not found[-1][3].any()


def test_an_error_of_the_simulator_names_the_environment():
    config = make_arena(num_agents=1)
    config.game.obs.num_tokens = 3
    with pytest.raises(
        WorkerError, match=r"environment 0 raised .*token budget.*env\.params\.game\.obs\.num_tokens"
    ):
        rows_of(MettaGridFactory(config), [])
