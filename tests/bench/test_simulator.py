"""Tests the benchmarks of the simulator and the vector backends with very short rounds."""

import numpy as np
import pytest

from metta_fast.bench.main import main
from metta_fast.bench.stepping.cpu_simulator import AllThreads, SingleThread, env_config, timed
from metta_fast.bench.stepping.vector_backends import turner
from metta_fast.envs import make_factory


@pytest.mark.parametrize("make", [SingleThread, lambda factory, envs: AllThreads(factory, envs, 2)])
def test_only_rows_that_act_are_counted(make):
    config = env_config("grid_bench", "compact", agents=16)
    config.max_steps = 8
    sim = make(make_factory(config), config.num_envs)
    try:
        counts = [sim.step() for _ in range(90)]
    finally:
        sim.close()
    assert sum(counts) == 90 * 16 * 8 // 9


@pytest.mark.parametrize("kind", ["compact", "dense", "tokens"])
def test_a_round_gives_steps_per_second(kind):
    config = env_config("grid_arena", kind, agents=24)
    sim = SingleThread(make_factory(config), config.num_envs)
    assert timed(sim.step, 0.05)["steps_per_s"] > 1000
    assert np.any(sim.rows.obs["obs"])
    sim.close()


def test_a_turn_is_one_block():
    config = env_config("counter", agents=8)
    found = turner(make_factory(config), config.num_envs, "serial", 1)
    assert found.turn() == 4
    found.close()


def test_a_quick_trial_measures_one_recipe(capsys):
    assert main(["--simulator", "--quick", "--seconds", "0.01", "--repeats", "1"]) == 0
    table = capsys.readouterr().out
    assert table.count("grid_bench (4 agents)") >= 3
    assert "grid_solo" not in table
