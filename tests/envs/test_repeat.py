"""Compares env.action_repeat with a plain loop over the environment's steps, for every kind of environment."""

from __future__ import annotations

import cloudpickle
import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.player import uniform
from metta_fast.contracts.slab import new_rows
from metta_fast.envs import make_factory
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.grid.env import GridFactory
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.repeat import repeated
from metta_fast.inference.players import RandomPlayer, play
from metta_fast.resolve.compose import compose
from metta_fast.resolve.env_on_gpu import cpu_wishes
from tests.vector.suite import flat
from tests.vector.toy_envs import crowd_factory, walk_factory

FACTORIES = {
    "counter": lambda: CounterFactory(agents_per_env=2, max_steps=5),
    "grid": lambda: GridFactory(num_agents=3, room_size=[6, 6], max_steps=7),
    "walk": lambda: walk_factory(),
    "crowd": lambda: crowd_factory(),
    "same-step": lambda: PythonEnvFactory(lambda index: SameStep(), name="own", has_final_obs=False),
}


class SameStep(gymnasium.Env):
    """Ends at every fifth step and goes on in the same call."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012 - Gymnasium's own form
    observation_space = gymnasium.spaces.Box(0, 99, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t = self.t % 5 + 1
        return np.array([self.t % 5], np.float32), float(action + self.t), self.t == 5, False, {}


def driven(factory, env):
    """One environment of a factory, and its rows after the reset."""
    spec = factory.spec
    batch = factory.make_batch(env, 1, 3)
    rows = new_rows(spec, spec.agents_per_env)
    batch.bind(rows)
    batch.reset(5)
    return batch, rows


def by_hand(batch, rows, action, repeat):
    """What a decision is to be: the row, from the environment's own steps."""
    rows.action[...] = action
    rewards = []
    for _ in range(repeat):
        batch.step()
        rewards.append(rows.reward.astype(np.float64))
        if rows.terminal.any() or rows.truncation.any() or rows.reset.any():
            break
    return flat(rows) | {"reward": np.sum(rewards, axis=0).astype(np.float32)}


@pytest.mark.parametrize("kind", FACTORIES)
@given(repeat=st.integers(2, 6), seed=st.integers(0, 99))
def test_a_decision_is_the_environments_own_steps(kind, repeat, seed):
    factory = FACTORIES[kind]()
    whole = repeated(factory, repeat)
    assert (whole.spec.native, whole.spec.obs) == (factory.spec.native, factory.spec.obs)
    rng = np.random.default_rng(seed)
    batch, rows = driven(whole, 1)
    own, own_rows = driven(factory, 1)
    for _ in range(12):
        action = uniform(factory.spec.action, factory.spec.agents_per_env, rng)
        rows.action[...] = action
        batch.step()
        expected = by_hand(own, own_rows, action, repeat)
        for name, value in flat(rows).items():
            assert np.array_equal(value, expected[name]), name
    batch.close()
    own.close()


def test_a_robots_decision_is_its_own_steps():
    pytest.importorskip("mujoco")
    from metta_fast.envs.robot.env import RobotFactory

    factory = RobotFactory("inverted_pendulum", max_steps=9)
    batch, rows = driven(repeated(factory, 4), 1)
    own, own_rows = driven(factory, 1)
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(60):
        action = uniform(factory.spec.action, 1, rng)
        rows.action[...] = action
        batch.step()
        expected = by_hand(own, own_rows, action, 4)
        assert all(np.array_equal(value, expected[name]) for name, value in flat(rows).items())
        assert 0 <= rows.reward[0] <= 4
        ends += int(rows.terminal[0] | rows.truncation[0])
    assert ends > 3
    assert batch.physics(0) is not None  # for pictures: what the robot's own batch has


def test_the_time_limit_counts_the_environments_own_steps_and_an_episode_its_decisions():
    """5 steps in decisions of 3 and 2."""
    factory = repeated(CounterFactory(max_steps=5), 3)
    assert factory.spec.max_steps == 2
    episodes = play(factory, RandomPlayer(factory.spec), 4, seed=1)
    assert episodes.lengths.tolist() == [2] * 4
    assert episodes.unfinished == 0


def test_it_is_a_key_of_the_environment_and_travels_to_workers():
    config = EnvConfig(factory="counter", num_envs=2, agents_per_env=1, max_steps=6, action_repeat=4)
    factory = cloudpickle.loads(cloudpickle.dumps(make_factory(config)))
    assert factory.spec.max_steps == 2
    assert factory.repeat == 4
    config.action_repeat = 1
    assert isinstance(make_factory(config), CounterFactory)
    with pytest.raises(UserError, match=r"env\.action_repeat=0: expected a whole number of at least 1"):
        compose(["hardware=cpu", "env.action_repeat=0"])


def test_an_unstable_robot_that_is_to_stop_the_run_does():
    pytest.importorskip("mujoco")
    from metta_fast.contracts.env import EnvError
    from metta_fast.envs.robot.env import RobotFactory

    batch, _ = driven(repeated(RobotFactory("hopper", on_unstable="stop"), 4), 1)
    qpos, qvel = batch.get_state(0)
    batch.set_state(0, qpos, qvel + 1e12)
    with pytest.raises(EnvError, match="unstable"):
        batch.step()


def test_environments_on_the_gpu_take_each_action_once():
    config = compose(["hardware=cpu", "env=grid", "env.action_repeat=4"]).config
    wishes = [wish.path for wish in cpu_wishes(config, lambda path: False)]
    assert "env.action_repeat" in wishes
    assert repeated(GridFactory(), 4).spec.gpu  # so that the reason is the key, not a missing engine
