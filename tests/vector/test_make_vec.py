"""Tests metta_fast.make_vec: what it takes, and Gymnasium's vector API step by step beside SyncVectorEnv."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import metta_fast
from metta_fast.contracts.errors import UserError
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.python_env import PythonEnvFactory, env_seed
from metta_fast.vector.first_look import Seen
from tests.strangers import Cheap


class Walk(gymnasium.Env):
    """Shows every kind of observation; its reward depends on the whole action."""

    observation_space = spaces.Dict(
        {
            "where": spaces.Discrete(5, start=-2),
            "more": spaces.Tuple((spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(3))),
            "x": spaces.Box(-9, 9, (2, 2), np.float64),
        }
    )
    action_space = spaces.MultiDiscrete([3, 2], start=[1, -1])

    def __init__(self, length: int = 5) -> None:
        self.length = length

    def _obs(self):
        random = self.np_random
        return {
            "where": int(random.integers(-2, 3)),
            "more": (random.integers([3, 4]), random.integers(0, 2, 3).astype(np.int8)),
            "x": random.normal(size=(2, 2)),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._obs(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        ended = self.steps >= self.length + int(self.np_random.integers(3))
        return self._obs(), float(action @ [1, 10]), ended, self.steps > self.length, {}


class Levels(Walk):
    action_space = spaces.Box(-3, 200, (2,), np.int16)


class Force(Walk):
    action_space = spaces.Box(-2, 2, (2,), np.float32)


class Bits(Walk):
    action_space = spaces.MultiBinary(2)


class Several(Walk):
    """Actions of nested parts."""

    action_space = spaces.Dict(
        z=spaces.Tuple([spaces.Box(-2, 2, (2,), np.float32), spaces.Discrete(3, start=5)]),
        a=spaces.MultiBinary(2),
        n=spaces.Box(0, 9, (), np.int64),
    )

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        (push, pick), bits, level = action["z"], action["a"], action["n"]
        reward = float(push @ [1, 10]) + 100 * int(pick) + 3 * int(bits @ [1, 2]) + int(level)
        return self._obs(), reward, self.steps >= self.length, False, {}


def same(ours, theirs):
    """Whether two batched observations are equal, with the same dtypes."""
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        return all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, tuple):
        return all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    assert ours.dtype == theirs.dtype
    return np.array_equal(ours, theirs)


def together(env, maker, backend, steps=60, n=3):
    """Steps ours and SyncVectorEnv with the same seeds and actions."""
    ours = metta_fast.make_vec(env, n, backend=backend, api="gymnasium", num_workers=2, num_threads=2)
    theirs = SyncVectorEnv([maker] * n, autoreset_mode=AutoresetMode.NEXT_STEP)
    try:
        assert isinstance(ours, gymnasium.vector.VectorEnv)
        assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
        for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
            assert getattr(ours, name) == getattr(theirs, name), name
        obs, _ = ours.reset(seed=5)
        assert same(obs, theirs.reset(seed=[env_seed(5, i) for i in range(n)])[0])
        assert obs in ours.observation_space
        theirs.action_space.seed(1)
        ends = 0
        for _ in range(steps):
            actions = theirs.action_space.sample()
            got, expected = ours.step(actions), theirs.step(actions)
            assert same(got[0], expected[0])
            np.testing.assert_array_equal(got[1], expected[1].astype(np.float32))
            for mine, other in zip(got[2:4], expected[2:4]):
                np.testing.assert_array_equal(mine, other)
                assert mine.dtype == other.dtype
            ends += int((got[2] | got[3]).sum())
        assert ends
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("backend", ["serial", "threads", "workers"])
@pytest.mark.parametrize("kind", [Walk, Levels, Force, Bits, Several])
def test_it_steps_as_sync_vector_env(kind, backend):
    together(kind, kind, backend)


def test_an_id_steps_as_sync_vector_env():
    together("CartPole-v1", lambda: gymnasium.make("CartPole-v1"), "serial", steps=200)


def test_gymnasiums_vector_wrappers_work():
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(
        metta_fast.make_vec("CartPole-v1", 4, api="gymnasium", backend="serial")
    )
    envs.reset(seed=0)
    found = []
    for _ in range(100):
        infos = envs.step(np.zeros(4, np.int64))[4]
        if "episode" in infos:
            found += list(infos["episode"]["r"][infos["_episode"]])
    envs.close()
    assert len(found) > 8
    assert set(found) <= {8.0, 9.0, 10.0, 11.0}


def test_resets_without_a_seed_differ_and_follow_the_first():
    def shown(seed):
        envs = metta_fast.make_vec("CartPole-v1", 2, api="gymnasium", backend="serial")
        found = [envs.reset(seed=seed)[0], envs.reset()[0], envs.reset()[0]]
        envs.close()
        return found

    one, again, other = shown(3), shown(3), shown(None)
    assert np.array_equal(one, again)
    assert not np.array_equal(one[1], one[2])
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    "env",
    [
        "counter",
        "CartPole-v1",
        "tests.strangers:cheap",
        Cheap,
        lambda: Cheap(),
        lambda index: Cheap(),
        CounterFactory(goal=2),
    ],
)
def test_what_it_takes(env):
    vec = metta_fast.make_vec(env, 4, num_blocks=2, backend="serial")
    vec.async_reset(1)
    held = vec.hold_all()
    assert [block.size for block in held] == [2, 2]
    for block in held:
        vec.send(block, np.zeros((2, vec.spec.action.width), vec.spec.action.dtype))
    vec.hold_all()
    vec.close()


def test_native_environments_have_gymnasiums_api_too():
    envs = metta_fast.make_vec("counter", 4, api="gymnasium")
    obs, _ = envs.reset(seed=0)
    assert obs in envs.observation_space
    obs, reward, *_ = envs.step(envs.action_space.sample())
    assert obs in envs.observation_space
    assert reward.shape == (4,)
    envs.close()


def test_arguments_and_wrappers_reach_the_environment():
    class Halved(gymnasium.ObservationWrapper):
        def observation(self, obs):
            return obs * np.float32(0.5)

    plain = metta_fast.make_vec(Cheap, 2, backend="serial")
    halved = metta_fast.make_vec("tests.strangers:cheap", 2, backend="serial", wrappers=[Halved])
    for vec in (plain, halved):
        vec.async_reset(0)
        vec.hold_all()
    np.testing.assert_array_equal(plain.rows.obs["obs"] * 0.5, halved.rows.obs["obs"])
    for vec in (plain, halved):
        vec.close()
    assert (
        metta_fast.make_vec(Walk, 1, kwargs={"length": 2}, backend="serial").batches[0].envs[0].env.length
        == 2
    )
    vec = metta_fast.make_vec("CartPole-v1", 1, kwargs={"max_episode_steps": 7}, backend="serial")
    assert vec.spec.max_steps == 7


@pytest.mark.parametrize(
    ("env", "keys", "says"),
    [
        ("CartPol-v1", {}, "did you mean 'CartPole-v1'"),
        ("CartPole-v1", {"api": "gymnasum"}, "api='gymnasum': did you mean 'gymnasium'"),
        ("CartPole-v1", {"backend": "worker"}, "vector.backend='worker' is not known"),
        ("CartPole-v1", {"kwargs": {"gravity": 3}}, "env.kwargs.gravity: unknown key"),
        ("counter", {"kwargs": {"goal": 3}}, "has no effect with env.factory=counter"),
        ("counter", {"wrappers": [lambda env: env]}, "wrappers are for environments in Python"),
        ("CartPole-v1", {"wrappers": [3]}, "wrappers: 3 is int"),
        ("CartPole-v1", {"num_envs": 0}, "num_envs=0: expected a whole number"),
        ("CartPole-v1", {"api": "gymnasium", "num_blocks": 2}, "num_blocks=2: api='gymnasium'"),
        ("tests.strangers:team", {"api": "gymnasium"}, "has 3 agents in each environment"),
        (3, {}, "make_vec: env is int"),
        (lambda a, b: None, {}, "cannot be called with no argument"),
        (CounterFactory(), {"kwargs": {"goal": 3}}, "this EnvFactory has its own"),
    ],
)
def test_mistakes(env, keys, says):
    with pytest.raises(UserError) as error:
        metta_fast.make_vec(env, **{"num_envs": 2, "backend": "serial", **keys})
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        ([0], r"shape \(1,\)"),
        ([0, 2], "environment 1 was given 2"),
        ([0.0, 1.0], "expected whole numbers"),
        ("ab", "expected"),
        ([[0], [1]], "expected"),
    ],
)
def test_actions_outside_their_space_are_refused(actions, says):
    envs = metta_fast.make_vec("CartPole-v1", 2, api="gymnasium", backend="serial")
    envs.reset(seed=0)
    with pytest.raises(UserError, match=says):
        envs.step(actions)
    for keys in ({"seed": [1, 2]}, {"seed": -1}, {"options": {"a": 1}}):
        with pytest.raises(UserError, match=next(iter(keys))):
            envs.reset(**keys)
    envs.close()


@pytest.mark.parametrize("actions", [{}, {"a": [[0, 0]] * 2, "n": [1, 2], "z": ([[0, 0]] * 2,)}, 3])
def test_actions_that_lack_a_part_are_refused(actions):
    envs = metta_fast.make_vec(Several, 2, api="gymnasium", backend="serial")
    envs.reset(seed=0)
    with pytest.raises(UserError, match=r"there is no \w"):
        envs.step(actions)
    envs.close()


class Mission(gymnasium.ObservationWrapper):
    """Adds a text, which no policy reads."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Dict(x=env.observation_space, mission=spaces.Text(5))

    def observation(self, observation):
        return {"x": observation, "mission": "go"}


def test_a_wrapped_factory_keeps_its_settings():
    factory = PythonEnvFactory(lambda index: Mission(Cheap()), name="told", drop=["mission"])
    vec = metta_fast.make_vec(factory, 2, backend="serial", wrappers=[gymnasium.Wrapper])
    assert (vec.spec.name, list(vec.spec.obs)) == ("told", ["x"])
    vec.close()


def test_environments_that_step_in_a_moment_step_here(monkeypatch):
    seconds = {"value": 5e-6}
    monkeypatch.setattr(
        "metta_fast.compat.make_vec.look", lambda factory: Seen(seconds=seconds["value"], waits="no")
    )
    for num_envs, expected in ((8, "SerialVector"), (64, "WorkersVector")):
        with metta_fast.make_vec("CartPole-v1", num_envs) as vec:
            assert type(vec).__name__ == expected
    seconds["value"] = 0.0  # could not be measured
    with metta_fast.make_vec("CartPole-v1", 2) as vec:
        assert type(vec).__name__ == "WorkersVector"
    with metta_fast.make_vec("grid", 2) as vec:
        assert type(vec).__name__ == "SerialVector"
