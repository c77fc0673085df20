"""Emulated spaces, rows and actions: those of PufferLib's wheel where it is right, and right where it is not."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import metta_fast.compat.pufferlib as ours
from metta_fast.compat.pufferlib import pytorch as native
from metta_fast.compat.pufferlib.emulation import GymnasiumPufferEnv, PettingZooPufferEnv
from tests.compat.puffer_envs import Herd

pytestmark = pytest.mark.filterwarnings("ignore:.*Casting input x")  # the sample of a Box of shape ()
DTYPES = st.sampled_from(["float32", "float64", "uint8", "int16", "int32", "int64", "bool"])


def boxes(dtypes: Any = DTYPES) -> Any:
    shapes = st.lists(st.integers(1, 3), max_size=3).map(tuple)
    return st.builds(_box, shapes, dtypes)


def _box(shape: tuple[int, ...], dtype: str) -> spaces.Box:
    low, high = (-9, 9) if dtype in ("float32", "float64", "int16", "int32", "int64") else (0, 1)
    return spaces.Box(low, high, shape, np.dtype(dtype).type)


LEAVES = st.one_of(
    boxes(),
    st.integers(1, 9).map(spaces.Discrete),
    st.lists(st.integers(1, 5), min_size=1, max_size=3).map(spaces.MultiDiscrete),
    st.integers(1, 4).map(spaces.MultiBinary),
)
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(parts)),
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3).map(spaces.Dict),
    ),
    max_leaves=6,
)


class Shows(gymnasium.Env):
    """Shows samples of a space."""

    def __init__(self, space: Any, action: Any = None) -> None:
        self.observation_space = deepcopy(space)  # its samples are this one's alone
        self.action_space = action or spaces.Discrete(2)
        self.got: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.got.append(action)
        return self.observation_space.sample(), 1.5, False, False, {}


def leaves_of(value: Any) -> list[np.ndarray]:
    if isinstance(value, dict):
        return [x for part in value.values() for x in leaves_of(part)]
    if isinstance(value, tuple):
        return [x for part in value for x in leaves_of(part)]
    return [np.asarray(value)]


def of_the_wheel(wheel: Any, space: Any) -> Any:
    """The wheel's environment. None where it has no room for the observation, since it counts Discrete as int64, or
    cannot write it (MultiBinary alone)."""
    try:
        env = wheel.emulation.GymnasiumPufferEnv(env=Shows(space))
        env.reset(seed=0)
    except (ValueError, TypeError):
        return None
    return env if env.observations.nbytes == env.obs_dtype.itemsize else None


@given(space=NESTED, seed=st.integers(0, 99))
def test_rows_have_the_bytes_of_the_wheel(space, seed):
    wheel = pytest.importorskip("pufferlib")
    mine, theirs = GymnasiumPufferEnv(env=Shows(space)), of_the_wheel(wheel, space)
    parts = ours.emulation.flatten_space(space)
    counted = [part for part in parts if isinstance(part, (spaces.Discrete, spaces.MultiDiscrete))]
    if theirs is None:
        assert counted or parts == [space]
        return
    if not counted:
        assert theirs.single_observation_space == mine.single_observation_space
    assert theirs.obs_dtype == mine.obs_dtype
    theirs.reset(seed=seed)
    mine.reset(seed=seed)
    assert theirs.observations.tobytes() == mine.observations.tobytes()
    action = np.zeros(1, np.int32)
    assert theirs.step(action)[1:] == mine.step(action)[1:]
    assert theirs.observations.tobytes() == mine.observations.tobytes()


@given(space=NESTED, seed=st.integers(0, 99))
def test_a_policy_finds_every_leaf_again(space, seed):
    env = GymnasiumPufferEnv(env=Shows(space))
    env.reset(seed=seed)
    space.seed(seed)
    shown = leaves_of(space.sample())
    observed = torch.from_numpy(env.observations)
    found = leaves_of(native.nativize_observation(observed, env.emulated))
    assert len(found) == len(shown)
    for one, two in zip(found, shown):
        np.testing.assert_array_equal(one.reshape(-1), two.reshape(-1).astype(one.dtype))


@pytest.mark.parametrize(
    ("space", "emulated"),
    [
        (spaces.Discrete(5), spaces.Box(-(2**31), 2**31 - 1, (1,), np.int32)),
        (spaces.MultiDiscrete([3, 4]), spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32)),
        (spaces.MultiDiscrete([[3, 4], [5, 6]]), spaces.Box(-(2**31), 2**31 - 1, (4,), np.int32)),
        (spaces.MultiBinary(3), spaces.Box(-128, 127, (3,), np.int8)),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))), spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32)),
        (spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,), np.int64))), spaces.Box(0, 255, (16,), np.uint8)),
    ],
)  # fmt: skip
def test_spaces_that_the_wheel_gets_wrong(space, emulated):
    env = GymnasiumPufferEnv(env=Shows(space))
    assert env.single_observation_space == emulated
    env.reset(seed=3)
    assert env.observations.shape == (1, *emulated.shape)


@pytest.mark.parametrize(
    ("space", "nvec", "row", "action"),
    [
        (spaces.MultiBinary(3), [2, 2, 2], [1, 0, 1], np.array([1, 0, 1], np.int8)),
        (spaces.Discrete(3, start=5), [3], [2], 7),
        (spaces.MultiDiscrete([2, 3], start=[1, -1]), [2, 3], [1, 2], np.array([2, 1])),
        (
            spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))),
            [2, 2, 2],
            [1, 0, 1],
            (1, np.array([0, 1])),
        ),
        (spaces.Dict({"a": spaces.MultiDiscrete([3, 4])}), [3, 4], [2, 3], {"a": np.array([2, 3])}),
    ],
)
def test_actions_that_the_wheel_gets_wrong(space, nvec, row, action):
    env = GymnasiumPufferEnv(env=Shows(spaces.Discrete(2), space))
    assert env.single_action_space == spaces.MultiDiscrete(nvec)
    env.reset()
    env.step(np.array(row, np.int32))
    (got,) = env.env.got
    assert space.contains(got)
    for one, two in zip(leaves_of(got), leaves_of(action), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (spaces.Text(4), "wrap the environment"),
        (spaces.Dict({}), "is empty"),
        (spaces.Dict({"a": spaces.Sequence(spaces.Discrete(2))}), "expected Box, Discrete"),
        (spaces.Discrete(2**40), "do not fit in int32"),
    ],
)
def test_spaces_that_it_cannot_take_are_refused(space, says):
    with pytest.raises(ours.APIUsageError, match=says):
        GymnasiumPufferEnv(env=Shows(space))


def test_a_box_among_other_actions_is_refused_with_the_cure():
    both = spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,))))
    with pytest.raises(ours.APIUsageError, match="metta_fast takes such an environment"):
        GymnasiumPufferEnv(env=Shows(spaces.Discrete(2), both))


def test_calls_out_of_order():
    env = GymnasiumPufferEnv(env_creator=Shows, env_args=[spaces.Discrete(2)])
    with pytest.raises(ours.APIUsageError, match="before reset"):
        env.step(0)
    env.reset()
    env.done = True
    with pytest.raises(ours.APIUsageError, match="after the episode's end"):
        env.step(0)
    with pytest.raises(ValueError, match="either env or env_creator"):
        GymnasiumPufferEnv()
    with pytest.raises(TypeError, match="give it as env_creator"):
        GymnasiumPufferEnv(env=Shows)
    with pytest.raises(ours.InvalidAgentError, match="no agent 'z'"):
        PettingZooPufferEnv(env=Herd()).action_space("z")


def test_an_observation_outside_its_space_is_named():
    class Wrong(Shows):
        def reset(self, **_):
            return 7, {}

    with pytest.raises(ours.APIUsageError, match=r"7 is not in Discrete\(2\)"):
        GymnasiumPufferEnv(env=Wrong(spaces.Discrete(2))).reset()


def test_a_pufferenv_says_what_it_lacks():
    class Empty(ours.PufferEnv):
        pass

    with pytest.raises(ours.APIUsageError, match="Empty has no single_observation_space"):
        Empty()


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3), seed=st.integers(0, 9))
def test_log_probability_and_entropy_are_those_of_the_wheel(sizes, seed):
    wheel = pytest.importorskip("pufferlib.pytorch")
    torch.manual_seed(seed)
    logits: Any = [torch.randn(5, size) for size in sizes]
    logits = logits[0] if len(sizes) == 1 else tuple(logits)
    action, logprob, entropy = native.sample_logits(logits)
    _, theirs, their_entropy = wheel.sample_logits(logits, action=action)
    torch.testing.assert_close(logprob, theirs)
    torch.testing.assert_close(entropy, their_entropy)
