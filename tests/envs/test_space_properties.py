"""Tests over generated spaces: actions satisfy `contains`, and observations that satisfy it are accepted."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from metta_fast.envs.actions import ActionDecoder, action_spec
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.spaces import observation_parts
from metta_fast.policy.mixed_head import make_head
from metta_fast.vector import make_vector

WHOLE = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
SHAPES = st.sampled_from([(), (1,), (3,), (2, 2), (1, 2, 2)])
FAST = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def boxes(draw: Any) -> spaces.Box:
    shape, dtype = draw(SHAPES), np.dtype(draw(st.sampled_from([*FLOATS, *WHOLE])))
    if dtype.kind == "f":
        top = float(np.finfo(dtype).max)
        numbers = st.floats(-top, top, width=dtype.itemsize * 8) | st.sampled_from([0.0, 0.1, 1.0, -1.0, 3.0])
        low, high = (draw(arrays.arrays(dtype, shape, elements=numbers)) for _ in range(2))
    else:
        limits = np.iinfo(dtype)
        numbers = st.integers(int(limits.min), int(limits.max)) | st.integers(0, 3)
        low, high = (draw(arrays.arrays(dtype, shape, elements=numbers)) for _ in range(2))
    low, high = np.minimum(low, high), np.maximum(low, high)
    if dtype.kind == "f" or (dtype.kind == "i" and dtype.itemsize < 8 and draw(st.booleans())):
        free = draw(arrays.arrays(bool, (2, *shape)))
        low = np.where(free[0], -np.inf, low) if free[0].any() else low
        high = np.where(free[1], np.inf, high) if free[1].any() else high
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spaces.Box(low, high, shape, dtype.type)


@st.composite
def choices(draw: Any) -> Any:
    kind, dtype = (
        draw(st.sampled_from(["one", "many", "bits"])),
        draw(st.sampled_from([np.int64, np.int16, np.uint8])),
    )
    start = st.integers(0 if dtype is np.uint8 else -90, 90)
    if kind == "one":
        return spaces.Discrete(draw(st.integers(1, 30)), start=draw(start), dtype=dtype)
    if kind == "bits":
        return spaces.MultiBinary(draw(st.sampled_from([1, 3, (2, 2), (1, 2, 2)])))
    shape = draw(st.sampled_from([(1,), (3,), (2, 2), (1, 2, 2)]))
    nvec = draw(arrays.arrays(np.int64, shape, elements=st.integers(1, 30)))
    return spaces.MultiDiscrete(nvec, dtype=dtype, start=draw(arrays.arrays(np.int64, shape, elements=start)))


class Env(gymnasium.Env):
    """Keeps the actions and shows the given observations."""

    def __init__(
        self, action_space: Any, observation_space: Any, shown: list[Any], agents: int | None = None
    ) -> None:
        self.action_space, self.observation_space, self.shown = action_space, observation_space, list(shown)
        self.actions: list[Any] = []
        if agents:
            self.num_agents = agents

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.shown[0], {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        return self.shown.pop(0) if len(self.shown) > 1 else self.shown[0], 0.0, False, False, {}


ROWS = 8


@st.composite
def nested(draw: Any) -> Any:
    """Dict and Tuple spaces of the others, also within one another."""
    inner = [draw(boxes() | choices()) for _ in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        inner.append(spaces.Tuple([draw(boxes() | choices()), spaces.Dict(deep=draw(choices()))]))
    return (
        spaces.Tuple(inner) if draw(st.booleans()) else spaces.Dict({f"k{i}": s for i, s in enumerate(inner)})
    )


def _one_of(actions: Any, k: int) -> Any:
    """The action of agent k from a structure of arrays [n, …]."""
    if isinstance(actions, dict):
        return {key: _one_of(part, k) for key, part in actions.items()}
    if isinstance(actions, tuple):
        return tuple(_one_of(part, k) for part in actions)
    return actions[k, ...] if actions.ndim > 1 else actions[k]


def handed_over(space: Any, rows: np.ndarray, agents: int | None) -> list[Any]:
    """The actions of every agent after these rows [ROWS, width] were sent."""
    seen = spaces.Box(-1, 1, (1,), np.float32)
    zeros = np.zeros((agents, 1) if agents else 1, np.float32)
    factory = PythonEnvFactory(lambda _: Env(space, seen, [zeros], agents))
    with make_vector(factory, 1 if agents else ROWS) as vec:
        vec.async_reset(0)
        block = vec.recv()
        vec.send(block, rows)
        vec.recv()
        batches = [env.env.actions[0] for env in vec.batches[0].envs]
    if not agents:
        return batches
    (actions,) = batches
    if isinstance(actions, (dict, tuple)):
        return [_one_of(actions, k) for k in range(agents)]
    assert actions.shape == ((agents, *space.shape) if space.shape else (agents, 1))
    return [
        actions[k, 0] if isinstance(space, spaces.Discrete) else actions[k].reshape(space.shape)
        for k in range(agents)
    ]


@FAST
@given(
    space=boxes() | choices() | nested(),
    several=st.booleans(),
    squash=st.booleans(),
    size=st.floats(-3, 12),
    data=st.data(),
)
def test_an_action_handed_over_is_in_its_space(space, several, squash, size, data):
    """The policy's samples, of any size, clipped and squashed, for one agent and for several."""
    spec = action_spec(space)
    bounded = spec.kind == "discrete" or all(spec.bounded)
    head = make_head(spec, squash=squash and bounded)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    params = torch.randn((ROWS, head.num_params), generator=generator) * 10.0**size
    draw = torch.rand if spec.kind == "discrete" else torch.randn
    noise = draw((ROWS, spec.width), generator=generator)
    if spec.kind == "discrete":
        params = params.clamp(-100, 100)
    rows = head.to_env(head.sample(params, noise)[0])
    rows = rows.numpy() if spec.kind == "discrete" else rows.clamp(-3e38, 3e38).numpy()
    for action in handed_over(space, rows, ROWS if several else None):
        assert space.contains(action), (action, action.dtype, action.shape)


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("agents", [None, 3001])
def test_all_numbers_of_a_box_are_equally_likely(dtype, agents):
    space = spaces.Box(1, 4, (1,), dtype)
    rows = np.linspace(1, 4, 3001, dtype=np.float32)[:, None]
    actions = ActionDecoder(space).decode(rows)
    assert actions.dtype == dtype
    np.testing.assert_allclose(np.bincount(actions[:, 0].astype(int))[1:] / 3001, 0.25, atol=1e-3)
    assert ActionDecoder(spaces.Box(0, 3, (1,), dtype)).decode(np.array([[2.99]], np.float32)).item() == 3


def test_a_missing_bound_leaves_the_nearest_number():
    space = spaces.Box(np.array([-np.inf, 0, -3]), np.array([np.inf, np.inf, np.inf]), dtype=np.int32)
    rows = np.array([[1.6, -5, 2.4], [-1e12, 1e12, -9]], np.float32)
    limits = np.iinfo(np.int32)
    assert ActionDecoder(space).decode(rows).tolist() == [[2, 0, 2], [limits.min, limits.max, -3]]


def test_bounds_at_the_largest_number_are_none():
    top = float(np.finfo(np.float32).max)
    spec = action_spec(spaces.Box(-top, top, (1,), np.float32))
    assert (spec.low, spec.high) == ((-np.inf,), (np.inf,))
    assert make_head(spec).to_env(torch.tensor([0.5])).item() == 0.5


# ── observations ──


@st.composite
def observed(draw: Any) -> Any:
    kind = draw(st.sampled_from(["box", "choice", "choice", "dict", "tuple"]))
    if kind == "box":
        return draw(boxes())
    if kind == "choice":
        return draw(choices())
    inner = [draw(boxes() | choices()) for _ in range(draw(st.integers(1, 3)))]
    return (
        spaces.Tuple(inner) if kind == "tuple" else spaces.Dict({f"leaf{i}": s for i, s in enumerate(inner)})
    )


def in_another_form(draw: Any, space: Any, value: Any) -> Any:
    """The same observation as lists, bools, Python's scalars or a dtype that casts safely."""
    if isinstance(space, spaces.Dict):
        return {key: in_another_form(draw, space[key], value[key]) for key in space.spaces}
    if isinstance(space, spaces.Tuple):
        parts = [in_another_form(draw, inner, part) for inner, part in zip(space.spaces, value)]
        return draw(st.sampled_from([tuple, list]))(parts)
    forms = [value, np.asarray(value).tolist()]
    if isinstance(space, spaces.MultiBinary):
        forms += [np.asarray(value, bool), np.asarray(value, bool).tolist(), np.asarray(value, float)]
    if isinstance(space, spaces.Box):
        forms += [np.asarray(value).astype(kind) for kind in (*WHOLE, *FLOATS, bool)]
        forms += [np.rint(value).astype(np.int16), np.asarray(value) > 0]
    if isinstance(space, spaces.Discrete):
        forms += [np.int16(value), np.array(value)]
    return draw(st.sampled_from(forms))


@FAST
@given(space=observed(), data=st.data())
def test_an_observation_that_the_space_contains_is_accepted(space, data):
    space.seed(data.draw(st.integers(0, 99)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            sample = space.sample()
        except (OverflowError, ValueError):
            return  # Gymnasium cannot draw from ranges this wide
        value = in_another_form(data.draw, space, sample)
        if not space.contains(value):
            return
        parts = observation_parts(space)
        for part in parts:
            row = np.zeros((1, *part.leaf.shape), part.leaf.dtype)
            part.write(value, part.view(row, ()), ())
            if not part.nvec:
                expected = np.asarray(part.find(value), part.dtype).reshape(row.shape)
                np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.MultiBinary(3), [1, 0, 1]),
        (spaces.MultiBinary(3), [True, False, True]),
        (spaces.MultiBinary((2, 2)), np.eye(2, dtype=bool)),
        (spaces.Box(0, 9, (2,), np.float32), np.array([1, 2], np.int16)),
        (spaces.Box(0, 9, (2,), np.float64), np.array([1, 2], np.int32)),
        (spaces.Box(0, 9, (2,), np.float32), [1, 2.5]),
        (spaces.Box(0, 9, (), np.float32), 2.5),
        (spaces.Box(0, 9, (), np.float32), np.float64(2.5)),
        (spaces.Discrete(2), True),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 9, (1,), np.float32)]), [1, [3]]),
        (spaces.Dict(a=spaces.Dict(b=spaces.MultiBinary(2))), {"a": {"b": (0, 1)}}),
    ],
    ids=str,
)
def test_everyday_forms_are_accepted(space, value):
    with make_vector(PythonEnvFactory(lambda _: Env(spaces.Discrete(2), space, [value])), 1) as vec:
        vec.async_reset(0)
        vec.recv()


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (spaces.MultiBinary(2), [1, 2], r"is \[1, 2\], outside its space of 0 and 1"),
        (spaces.Box(0, 9, (2,), np.float32), np.zeros(2), "has dtype float64, its space says float32"),
        (spaces.Box(0, 9, (2,), np.float32), ["a", "b"], "cannot be converted to an array of float32"),
        (spaces.Box(0, 9, (2,), np.float32), [[1], [1, 2]], "cannot be converted to an array of float32"),
        (spaces.Box(0, 9, (2,), np.uint8), [300, 1], "cannot be converted to an array of uint8"),
        (spaces.Discrete(3), 3, "is 3, outside its space"),
        (spaces.Discrete(3), 1.0, "expected whole numbers"),
    ],
    ids=str,
)
def test_what_the_space_does_not_contain_is_named(space, value, message):
    vec = make_vector(PythonEnvFactory(lambda _: Env(spaces.Discrete(2), space, [value])), 1)
    vec.async_reset(0)
    with pytest.raises(
        RuntimeError, match=f"environment 0 gave a wrong value: observation 'obs' .*{message}"
    ):
        vec.recv()
