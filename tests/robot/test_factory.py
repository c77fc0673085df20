"""Tests that a robot's factory keeps its options in other processes, and how an episode ends at its limit."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("gymnasium")

from metta_fast.envs.robot.env import RobotFactory, RobotSim
from metta_fast.envs.robot.randomize import read_randomize
from metta_fast.vector import make_vector
from tests.robot.test_faults import cheetah
from tests.vector.suite import BACKENDS

LIMIT = 5


def rows(vec: Any, count: int) -> list[tuple[list[bool], list[bool], list[bool]]]:
    """(terminal, truncation, mask) of so many steps without motion."""
    vec.async_reset(0)
    found = []
    for _ in range(count):
        for block in vec.hold_all():
            vec.send(block, np.zeros_like(block.rows.action))
        vec.hold_all()
        found.append(tuple(flag.tolist() for flag in (vec.rows.terminal, vec.rows.truncation, vec.rows.mask)))
    return found


@pytest.mark.parametrize("keys", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("terminal", [True, False])
def test_the_limit_ends_an_episode_alike_in_every_backend(keys: dict[str, Any], terminal: bool) -> None:
    factory = RobotFactory("half_cheetah", max_steps=LIMIT, limit_is_terminal=terminal)
    with make_vector(factory, 5, num_blocks=2, **keys) as vec:
        found = rows(vec, LIMIT)
    no, yes = [False] * 5, [True] * 5
    assert found[:-1] == [(no, no, yes)] * (LIMIT - 1)
    assert found[-1] == ((yes, no, no) if terminal else (no, yes, no))


def test_a_copy_of_a_factory_has_every_option(tmp_path: Path) -> None:
    own: dict[str, Any] = {
        "max_steps": 17,
        "limit_is_terminal": True,
        "frame_skip": 3,
        "on_unstable": "stop",
        "privileged": True,
        "xml_file": cheetah(tmp_path),
        "preset": "exact",
        "njmax": 40,
        "nconmax": 9,
        "randomize": {"mass": [0.8, 1.2], "latency": 1, "push": 1, "push_every": 50},
        "forward_reward_weight": 2.5,
    }
    parameters = inspect.signature(RobotFactory.__init__).parameters.keys() - {
        "self",
        "task",
        "quiet",
        "options",
    }
    assert own.keys() >= parameters, "a new option needs a value here that is not its default"
    factory = RobotFactory("half_cheetah", quiet=True, **own)
    plain = RobotFactory("half_cheetah")
    held = {**own, "randomize": read_randomize(own["randomize"])}
    for copy in (
        pickle.loads(pickle.dumps(factory)),
        pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(factory)))),
    ):
        assert copy.spec == factory.spec
        assert copy.options == {"forward_reward_weight": 2.5}
        for name in parameters:
            assert getattr(copy, name) == held[name] != getattr(plain, name), name
        np.testing.assert_array_equal(copy.record, factory.record)


@pytest.mark.parametrize("terminal", [True, False])
def test_an_unstable_step_at_the_limit_is_terminal_and_not_truncated(tmp_path: Path, terminal: bool) -> None:
    """A value must not be estimated from an observation that is no longer of the simulation."""

    def play(max_steps: int) -> tuple[RobotSim, int]:
        sim = RobotSim(
            "half_cheetah", xml_file=cheetah(tmp_path, timestep="0.1"), max_steps=max_steps,
            limit_is_terminal=terminal, quiet=True,
        )  # fmt: skip
        sim.reset()
        rng = np.random.default_rng(0)
        for step in range(1, 200):
            sim.step(rng.uniform(-1, 1, 6).astype(np.float32))
            if not sim.rows.mask[0]:
                return sim, step
        raise AssertionError("no episode ended")

    sim, step = play(1000)
    assert sim.rows.stats[0, -1] == 1
    assert np.isfinite(sim.obs).all()
    np.testing.assert_array_equal(
        sim.obs.astype(np.float32), sim.rows.obs["obs"][0]
    )  # the last that was finite
    for max_steps in (step, step + 1):
        sim, last = play(max_steps)
        assert last == step
        assert (sim.rows.terminal[0], sim.rows.truncation[0]) == (True, False)
        assert sim.rows.stats[0, -1] == 1
        assert np.isfinite(sim.obs).all()
    sim, last = play(step - 1)
    assert last == step - 1
    assert (sim.rows.terminal[0], sim.rows.truncation[0]) == (terminal, not terminal)
    assert sim.rows.stats[0, -1] == 0


def test_warnings_are_counted_by_episode(tmp_path: Path) -> None:
    sim = RobotSim(
        "half_cheetah", xml_file=cheetah(tmp_path, memory="40K", boxes=12), max_steps=20, quiet=True
    )
    sim.reset()
    counts = []
    for _ in range(3):
        for _ in range(20):
            sim.step(np.zeros(6, np.float32))
        assert not sim.rows.mask[0]
        counts.append(float(sim.rows.stats[0, -2]))
        sim.step(np.zeros(6, np.float32))  # resets
    assert min(counts) >= 40
    assert max(counts) < 1.5 * min(counts)


@pytest.mark.parametrize("task", ["hopper", "ant", "reacher"])
def test_each_episode_of_an_environment_starts_in_its_own_way_and_again_by_its_seed(task: str) -> None:
    def starts(seed: int, env_id: int) -> list[bytes]:
        sim = RobotSim(task, seed=seed, env_id=env_id, max_steps=1)
        found = [sim.reset().tobytes()]
        action = np.zeros(sim.factory.spec.action.width, np.float32)
        for _ in range(3):
            assert not sim.rows.mask[0] or sim.rows.reset[0]
            sim.step(action)
            found.append(sim.step(action)[0].tobytes())
        return found

    all_starts = [starts(seed, env_id) for seed, env_id in ((0, 0), (1, 0), (0, 1))]
    assert len({start for found in all_starts for start in found}) == 12
    assert starts(0, 1) == all_starts[2]


@pytest.mark.parametrize("place", range(2, 7))
@pytest.mark.parametrize("value", [-0.4, -0.6, 0.6])
def test_a_hoppers_health_looks_at_each_number_behind_its_height(place: int, value: float) -> None:
    """An angle or the speed alone outside healthy_state_range, in the air, where nothing else moves much."""
    wide = (-1e3, 1e3)
    sim = RobotSim("hopper", healthy_state_range=(-0.5, 0.5), healthy_angle_range=wide, healthy_z_range=wide)
    if place in (3, 4) and value > 0:
        pytest.skip("the joint does not bend this way")
    sim.reset()
    state = np.zeros(12)
    state[1], state[place] = 3.0, value
    sim.set_state(state[:6], state[6:])
    *_, terminal, _, info = sim.step(np.zeros(3, np.float32))
    after = np.concatenate(sim.batch.get_state(0))
    outside = [i for i in range(2, 12) if not -0.5 < after[i] < 0.5]
    assert outside == ([place] if abs(value) > 0.5 else [])
    assert terminal == bool(outside)
    assert (info["reward_survive"] > 0) == (not outside)
