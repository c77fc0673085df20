"""Tests Python environments: episode ends, autoreset modes, spaces, seeds, statistics."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from metta_fast.contracts.env import ActionSpec, EnvError, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.envs.python_env import PythonEnvFactory, env_seed
from metta_fast.envs.spaces import observation_parts
from metta_fast.vector import make_vector
from tests.vector.toy_envs import crowd_factory


class Clock(gymnasium.Env):
    """obs: the time and the episode. Ends at time 3: ends[episode] = (terminated, truncated)."""

    observation_space = spaces.Box(0, 99, (2,), np.uint8)
    action_space = spaces.Discrete(3)
    ends = ((True, False), (False, True), (True, True))

    def __init__(self, index=0):
        self.episode, self.seeds, self.actions = -1, [], []

    def obs(self):
        return np.array([self.t, self.episode], np.uint8)

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.t = 0
        self.episode += 1
        return self.obs(), {}

    def step(self, action):
        self.actions.append(action)
        self.t += 1
        done = self.t == 3
        return (
            self.obs(),
            float(self.t),
            *(self.ends[self.episode] if done else (False, False)),
            {"score": 10 * self.episode},
        )


class SameStep(Clock):
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def step(self, action):
        obs, reward, terminal, truncation, info = super().step(action)
        if terminal or truncation:
            last, first = obs, self.reset()[0]
            return first, reward, terminal, truncation, {"final_obs": last, "final_info": info}
        return obs, reward, terminal, truncation, {}


class NextStep(Clock):
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    over = False

    def step(self, action):
        if self.over:
            self.over = False
            return self.reset()[0], 0.0, False, False, {}
        result = super().step(action)
        self.over = result[2] or result[3]
        return result


def rows_of(factory, steps, actions=None, seed=0, num_envs=1):
    """Lists of (obs, reward, terminal, truncation, mask, reset) of env 0's first agent, and the vector."""
    vec = make_vector(factory, num_envs)
    vec.async_reset(seed)
    out = []
    for t in range(steps + 1):
        block = vec.recv()
        r = block.rows
        out.append(
            (next(iter(r.obs.values()))[0].tolist(), float(r.reward[0]), *(bool(f[0]) for f in r[3:7]))
        )
        given = (
            np.zeros(r.action.shape, r.action.dtype)
            if actions is None
            else np.asarray(actions[t], r.action.dtype)
        )
        vec.send(block, given.reshape(r.action.shape))
    return out, vec


T, F = True, False
EXPECTED = [
    ([0, 0], 0.0, F, F, T, T),
    ([1, 0], 1.0, F, F, T, F),
    ([2, 0], 2.0, F, F, T, F),
    ([3, 0], 3.0, T, F, F, F),
    ([0, 1], 0.0, F, F, T, T),
    ([1, 1], 1.0, F, F, T, F),
    ([2, 1], 2.0, F, F, T, F),
    ([3, 1], 3.0, F, T, F, F),
    ([0, 2], 0.0, F, F, T, T),
    ([1, 2], 1.0, F, F, T, F),
    ([2, 2], 2.0, F, F, T, F),
    ([3, 2], 3.0, T, T, F, F),
]


@pytest.mark.parametrize("kind", [Clock, SameStep, NextStep])
def test_episode_ends_as_the_table_says_in_every_autoreset_mode(kind):
    rows, vec = rows_of(PythonEnvFactory(kind), 11)
    assert rows == EXPECTED
    env = vec.batches[0].envs[0].env
    assert len(env.actions) == 9  # the action of a masked row reaches no episode


def test_same_step_without_final_observations_has_no_masked_row():
    class Poor(SameStep):
        def step(self, action):
            return *super().step(action)[:4], {"score": 1}

    rows, vec = rows_of(PythonEnvFactory(Poor, has_final_obs=False, stats=("score",)), 4)
    assert rows[3] == ([0, 1], 3.0, T, F, T, T)
    assert rows[4] == ([1, 1], 1.0, F, F, T, F)
    assert not vec.spec.has_final_obs
    with pytest.raises(Exception, match=r"no 'final_obs'.*has_final_obs=False"):
        rows_of(PythonEnvFactory(Poor), 4)
    with pytest.raises(UserError, match="has_final_obs=False is for same-step"):
        PythonEnvFactory(Clock, has_final_obs=False)


@pytest.mark.parametrize("kind", [Clock, SameStep])
def test_statistics_come_from_the_last_steps_info(kind):
    _, vec = rows_of(PythonEnvFactory(kind, stats=("score",)), 6)
    assert vec.recv().rows.stats[0, 0] == 10.0
    with pytest.raises(Exception, match=r"environment 0 gave a wrong value: info .* no 'sore'"):
        rows_of(PythonEnvFactory(kind, stats=("sore",)), 6)


def test_a_time_limit_of_gymnasium_is_a_truncation():
    rows, vec = rows_of(PythonEnvFactory(lambda _: gymnasium.make("Pendulum-v1", max_episode_steps=4)), 5)
    assert [r[2:] for r in rows[3:]] == [(F, F, T, F), (F, T, F, F), (F, F, T, T)]
    assert vec.spec.max_steps == 4
    assert vec.spec.action.kind == "box"
    assert vec.spec.action.low == (-2.0,)


def test_seeds_are_hashed_from_seed_and_global_index():
    seeds = {env_seed(seed, index) for seed in (0, 1, 1 << 63) for index in range(300)}
    assert len(seeds) == 900
    assert all(0 <= s < 1 << 31 for s in seeds)
    vec = make_vector(PythonEnvFactory(Clock), 5, num_blocks=2)
    vec.async_reset(7)
    vec.hold_all()
    assert [env.env.seeds for batch in vec.batches for env in batch.envs] == [
        [env_seed(7, i)] for i in range(5)
    ]


class Echo(gymnasium.Env):
    """Records the actions that it is given; obs is what the test sets."""

    def __init__(self, obs_space, action_space, value=None):
        self.observation_space, self.action_space = obs_space, action_space
        self.value = obs_space.sample() if value is None else value
        self.actions = []

    def reset(self, *, seed=None, options=None):
        return self.value, {}

    def step(self, action):
        self.actions.append(action)
        return self.value, 0.0, False, False, {}


BINARY = spaces.Discrete(2)


def echo(obs_space, action_space=BINARY, value=None, actions=None):
    _, vec = rows_of(
        PythonEnvFactory(lambda _: Echo(obs_space, action_space, value)),
        0 if actions is None else 1,
        actions and [*actions, actions[-1]],
    )
    vec.hold_all()
    return vec.spec, vec.rows, vec.batches[0].envs[0].env


BOX = spaces.Box(0, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("space", "row", "expected", "nvec"),
    [
        (spaces.Discrete(3, start=5), [2], 7, (3,)),
        (spaces.Discrete(3, start=-1), [0], -1, (3,)),
        (spaces.MultiDiscrete([2, 5]), [1, 4], np.array([1, 4]), (2, 5)),
        (spaces.MultiDiscrete([2, 5], start=[10, 20]), [1, 4], np.array([11, 24]), (2, 5)),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), [1, 2, 3, 4], np.array([[1, 2], [3, 4]]), (2, 3, 4, 5)),
        (spaces.MultiBinary(3), [1, 0, 1], np.array([1, 0, 1], np.int8), (2, 2, 2)),
        (spaces.Box(-1, 1, (2, 1), np.float64), [0.5, -1.0], np.array([[0.5], [-1.0]]), ()),
    ],
)
def test_actions_arrive_in_the_environments_own_space(space, row, expected, nvec):
    spec, _, env = echo(BOX, space, actions=[row])
    assert spec.action.nvec == nvec
    assert spec.action.width == len(row)
    assert space.contains(env.actions[0])
    np.testing.assert_array_equal(env.actions[0], expected)


@pytest.mark.parametrize(
    ("space", "value", "leaf", "row"),
    [
        (
            spaces.Box(0, 255, (2, 2), np.uint8),
            np.array([[1, 2], [3, 250]], np.uint8),
            Leaf((2, 2), "uint8", "symbols"),
            [[1, 2], [3, 250]],
        ),
        (spaces.Box(-9, 9, (), np.float64), np.float64(2.5), Leaf((1,), "float64"), [2.5]),
        (spaces.Discrete(4, start=2), 5, Leaf((4,), "uint8"), [0, 0, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), Leaf((5,), "uint8"), [0, 1, 1, 0, 0]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), Leaf((3,), "int8"), [1, 0, 1]),
    ],
)
def test_observations_keep_their_dtype_and_value(space, value, leaf, row):
    spec, rows, _ = echo(space, value=value)
    assert spec.obs == {"obs": leaf}
    assert rows.obs["obs"].tolist() == [row]


@pytest.mark.parametrize(
    ("space", "kind", "axis"),
    [
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), "image", 2),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), "image", 0),
        (spaces.Box(0, 255, (24, 1, 30), np.uint8), "image", 1),
        (spaces.Box(0, 255, (11, 11, 3), np.uint8), "symbols", 2),
        (spaces.Box(0, 255, (84, 84), np.uint8), "vector", None),
        (spaces.Box(0, 255, (200, 3), np.uint8), "vector", None),
        (spaces.Box(0, 1, (84, 84, 3), np.float32), "vector", None),
        (spaces.Discrete(4), "vector", None),
        (spaces.MultiBinary(3), "vector", None),
        (BOX, "vector", None),
    ],
)
def test_a_leafs_kind_follows_from_shape_and_dtype(space, kind, axis):
    (leaf,) = (part.leaf for part in observation_parts(space))
    assert (leaf.kind, leaf.channel_axis) == (kind, axis)


def test_an_environment_may_say_what_a_leaf_holds():
    def make(kinds):
        env = Echo(spaces.Dict({"camera": spaces.Box(0, 1, (9, 9, 3), np.float32), "map": BOX}), BINARY)
        env.metadata = {**env.metadata, "kinds": kinds}
        return PythonEnvFactory(lambda index: env, 1).spec.obs

    obs = make({"camera": "image"})
    assert (obs["camera"].kind, obs["camera"].channel_axis, obs["map"].kind) == ("image", 2, "vector")
    assert make({"camera": "flat"})["camera"].kind == "vector"
    for wrong in ({"camera": "picture"}, {"lens": "image"}, "image", {"map": "grid"}):
        with pytest.raises(
            UserError, match=r"metadata\['kinds'\] is .*leaves among camera, map and kinds among"
        ):
            make(wrong)


def test_dict_and_tuple_observations_are_matched_by_name():
    space = spaces.Dict(
        {"z": BOX, "a": spaces.Dict({"y": spaces.Discrete(2), "x": BOX}), "m": spaces.Tuple([BOX, BOX])}
    )
    box = {i: np.full(2, i, np.float32) for i in range(4)}
    value = {"m": (box[0], box[1]), "a": {"x": box[2], "y": 1}, "z": box[3]}  # another order than the space's
    spec, rows, _ = echo(space, value=value)
    assert list(spec.obs) == ["a/x", "a/y", "m/0", "m/1", "z"]
    assert {k: v[0].tolist() for k, v in rows.obs.items()} == {
        "a/x": [2, 2],
        "a/y": [0, 1],
        "m/0": [0, 0],
        "m/1": [1, 1],
        "z": [3, 3],
    }
    with pytest.raises(Exception, match="observation 'a/y': the space has it"):
        echo(space, value={**value, "a": {"x": box[2]}})


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (BOX, np.zeros(2), "dtype float64, its space says float32"),
        (BOX, np.zeros((1, 2), np.float32), r"shape \(1, 2\), expected \(2,\)"),
        (spaces.Discrete(3, start=1), 0, "outside its space"),
        (spaces.Discrete(3), 0.5, "expected whole numbers"),
    ],
)
def test_wrong_observations_name_environment_and_field(space, value, message):
    with pytest.raises(Exception, match=f"environment 0 gave a wrong value: observation 'obs'.*{message}"):
        echo(space, value=value)


def test_spaces_without_an_array_form_are_refused():
    with pytest.raises(UserError, match="observation 'obs' is of Text"):
        PythonEnvFactory(lambda _: Echo(spaces.Text(5), spaces.Discrete(2)))
    with pytest.raises(UserError, match="action space Text"):
        PythonEnvFactory(lambda _: Echo(BOX, spaces.Dict({"a": spaces.Text(5)})))
    with pytest.raises(UserError, match=r"action space Tuple\(\) is empty"):
        PythonEnvFactory(lambda _: Echo(BOX, spaces.Tuple([])))
    with pytest.raises(EnvError, match="environment 0 could not be made: KeyError"):
        PythonEnvFactory(lambda index: {}["no"])


def test_an_agent_gone_before_its_env_ends_is_masked_until_the_reset():
    vec = make_vector(crowd_factory(), 1)
    assert vec.spec.action == ActionSpec("discrete", nvec=(4,), start=(10,))
    vec.async_reset(0)
    seen = []
    for _ in range(6):
        r = vec.recv().rows
        seen.append(
            [r.mask.tolist(), r.reset.tolist(), r.terminal.tolist(), r.truncation.tolist(), r.reward.tolist()]
        )
        if r.terminal[0]:
            assert r.stats[0, 0] == 2
            assert r.obs["obs"][0].tolist() == [13, 2]  # its last observation, although it is gone
        vec.send(vec.blocks[0], np.full((3, 1), 3, np.int32))
    r = 3.25  # (10 + 3) / 4
    assert seen == [
        [[T, T, T], [T, T, T], [F, F, F], [F, F, F], [0, 0, 0]],
        [[T, T, T], [F, F, F], [F, F, F], [F, F, F], [r, r, r]],
        [[F, T, T], [F, F, F], [T, F, F], [F, F, F], [r, r, r]],
        [[F, F, T], [F, F, F], [F, F, F], [F, T, F], [0, r, r]],
        [[F, F, F], [F, F, F], [F, F, T], [F, F, F], [0, 0, r]],
        [[T, T, T], [T, T, T], [F, F, F], [F, F, F], [0, 0, 0]],
    ]


def test_an_environment_without_state_says_so():
    vec = make_vector(PythonEnvFactory(Clock, name="clock"), 2)
    vec.async_reset(0)
    vec.hold_all()
    assert not vec.spec.cheap_state
    with pytest.raises(UserError, match="clock: its state cannot be saved"):
        vec.state_dict()


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-7),
        spaces.MultiDiscrete([3, 2]),
        spaces.MultiBinary((2, 2)),
        spaces.Box(-1, 1, (2, 3), np.float64),
        spaces.Box(-1, 1, (), np.float32),
    ],
)
def test_actions_are_of_the_space_and_the_environments_own(space):
    """What an environment was given does not change when the rows do."""
    kept = []

    class Keeper(Clock):
        action_space = space

        def step(self, action):
            kept.append((action, np.array(action)))
            return super().step(action)

    factory = PythonEnvFactory(Keeper)
    width = factory.spec.action.width
    tape = np.random.default_rng(0).integers(0, 2, (4, 2, width))
    rows_of(factory, 3, tape, num_envs=2)
    given = np.array([value for _, value in kept]).reshape(3, 2, width)
    np.testing.assert_array_equal(
        given, tape[:3] + (space.start if isinstance(space, spaces.Discrete) else 0)
    )
    for action, value in kept:
        np.testing.assert_array_equal(action, value)
        assert space.contains(action)
        assert action.dtype == space.dtype


def test_a_number_of_environments_given_to_the_factory_is_told_to_have_no_effect(caplog):
    with caplog.at_level("INFO"):
        for keys in ({}, {"num_envs": 3}):
            PythonEnvFactory(Clock, **keys)
        assert PythonEnvFactory(Clock, 7, name="clock").spec.name == "clock"
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["note"] * 2
    assert "env.num_envs, or make_vector(factory, num_envs)" in caplog.text


@pytest.mark.parametrize("error", [ValueError("no port is free"), KeyboardInterrupt()])
def test_environments_made_before_one_that_cannot_be_made_are_closed(error):
    closed = []

    class Port(Clock):
        def __init__(self, index):
            if index == 3:
                raise error
            super().__init__(index)
            self.index = index

        def close(self):
            closed.append(self.index)

    factory = PythonEnvFactory(Port)
    closed.clear()
    with pytest.raises((UserError, EnvError, KeyboardInterrupt)):
        factory.make_batch(0, 5, 5)
    assert sorted(closed) == [0, 1, 2]
