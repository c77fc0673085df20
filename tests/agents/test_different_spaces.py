"""Tests agents whose spaces differ: padded by env.pad, else refused."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from metta_fast.contracts.errors import UserError
from metta_fast.envs.agents.joint_space import joined_spaces
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.vector import make_vector

D, F = spaces.Discrete(2), np.float32


def box(*shape, dtype=F):
    return spaces.Box(-1, 1, shape, dtype)


class Two:
    """Agents a and b with given spaces; keeps the actions that it gets. obs: all ones, or as `shown` says."""

    def __init__(self, a, b, shown=None, mask=None):
        self.possible_agents = ["a", "b"]
        self.spaces = {"a": a, "b": b}
        self.shown, self.mask, self.actions = shown or {}, mask, []

    def observation_space(self, agent):
        return self.spaces[agent][0]

    def action_space(self, agent):
        return self.spaces[agent][1]

    def _obs(self):
        return {a: self.shown[a] if self.shown else np.ones(self.spaces[a][0].shape, F) for a in "ab"}

    def _infos(self):
        return {a: {"action_mask": self.mask[a]} if self.mask else {} for a in "ab"}

    def reset(self, seed=None, options=None):
        self.agents = ["a", "b"]
        return self._obs(), self._infos()

    def step(self, actions):
        assert all(self.spaces[a][1].contains(action) for a, action in actions.items())
        self.actions.append(actions)
        no = dict.fromkeys("ab", False)
        return self._obs(), dict.fromkeys("ab", 1.0), no, no, self._infos()


def first_rows(game, pad=True, actions=None, **keys):
    """The rows after a reset, or after a step with these actions; the factory's spec."""
    with make_vector(PythonEnvFactory(lambda index: game, pad=pad, **keys), 1) as vec:
        vec.async_reset(0)
        block = vec.recv()
        if actions is not None:
            vec.send(block, np.array(actions, vec.rows.action.dtype))
            vec.recv()
        rows = vec.rows
        return {name: leaf.tolist() for name, leaf in rows.obs.items()}, rows.action_mask.tolist(), vec.spec


def test_smaller_observations_are_padded_with_zeros():
    obs, mask, spec = first_rows(Two((box(2), D), (box(3), D)))
    assert obs == {"obs": [[1, 1, 0], [1, 1, 1]]}
    assert spec.obs["obs"].shape == (3,)
    assert np.shape(mask) == (2, 0)
    obs, _, _ = first_rows(Two((box(1, 2), D), (box(2, 1), D)))
    assert obs == {"obs": [[[1, 1], [0, 0]], [[1, 0], [1, 0]]]}
    obs, _, _ = first_rows(Two((spaces.Discrete(2), D), (spaces.Discrete(3, start=4), D), {"a": 1, "b": 4}))
    assert obs == {"obs": [[0, 1, 0], [1, 0, 0]]}


def test_leaves_that_an_agent_lacks_are_zeros():
    a, b = spaces.Dict(x=box(1), y=box()), spaces.Dict(x=box(2), z=spaces.Discrete(2))
    shown = {
        "a": {"x": np.array([7], F), "y": np.float32(8)},
        "b": {"x": np.array([5, 6], F), "z": 0},
    }
    obs, _, _ = first_rows(Two((a, D), (b, D), shown))
    assert obs == {"x": [[7, 0], [5, 6]], "y": [[8], [0]], "z": [[0, 0], [1, 0]]}


@pytest.mark.parametrize(
    ("a", "b", "row", "taken", "legal"),
    [
        (
            spaces.Discrete(2, start=1),
            spaces.Discrete(3),
            [[1], [2]],
            (2, 2),
            [[True, True, False], [True, True, True]],
        ),
        (
            spaces.Discrete(2),
            spaces.MultiDiscrete([1, 2]),
            [[1, 0], [0, 1]],
            (1, [0, 1]),
            [[True, True, True, False], [True, False, True, True]],
        ),
        (box(1), spaces.Box(-4, 2, (2,), F), [[-3, 9], [-3, 9]], ([-1], [-3, 2]), [[], []]),
        (box(1), spaces.Discrete(2), [[0, 0.5], [1, 9]], ([0.5], 1), [[True, False], [True, True]]),
    ],
)
def test_actions_that_an_agent_lacks_are_illegal_or_dropped(a, b, row, taken, legal):
    game = Two((box(1), a), (box(1), b))
    _, mask, _ = first_rows(game, actions=row)
    assert mask == legal
    for agent, action in zip("ab", taken):
        np.testing.assert_array_equal(game.actions[-1][agent], np.array(action, F))


def test_an_agents_own_mask_is_put_in_its_place():
    both = (box(1), spaces.Discrete(2)), (box(1), spaces.Discrete(3))
    masks = {"a": np.array([0, 1], np.int8), "b": np.array([1, 0, 0], np.int8)}
    _, mask, _ = first_rows(Two(*both, mask=masks), action_mask="info")
    assert mask == [[False, True, False], [True, False, False]]
    shown = {agent: {"o": np.ones(1, F), "action_mask": given} for agent, given in masks.items()}
    seen = [(spaces.Dict(o=box(1), action_mask=spaces.MultiBinary(n)), spaces.Discrete(n)) for n in (2, 3)]
    obs, mask, _ = first_rows(Two(*seen, shown))
    assert list(obs) == ["o"]
    assert mask == [[False, True, False], [True, False, False]]


def test_bounds_of_observations_alone_need_no_padding():
    wide = spaces.Box(-9, 5, (1,), F)
    joint = joined_spaces({"a": (box(1), D), "b": (wide, D)}, pad=False)
    assert joint.observation == spaces.Box(-9, 5, (1,), F)
    assert joint.fits is None


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (
            (box(2), D),
            (box(3), D),
            r"observation of a is Box \[2\] float32, of b Box \[3\] float32; env.pad=true",
        ),
        (
            (box(2), D),
            (box(2), spaces.Discrete(3)),
            r"action of a is Discrete\(2\), of b Discrete\(3\); env.pad=true",
        ),
        (
            (spaces.Dict(x=box(1)), D),
            (spaces.Dict(y=box(1)), D),
            r"Dict\(x: Box \[1\] float32\), of b Dict\(y: ",
        ),
    ],
)
def test_different_spaces_are_refused_without_pad(a, b, message):
    with pytest.raises(UserError, match=message):
        PythonEnvFactory(lambda index: Two(a, b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (box(2), box(2, dtype=np.float64)),
        (box(2), box(1, 2)),
        (box(2), D),
        (spaces.Dict(x=box(1)), spaces.Dict(x=D)),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiDiscrete([3, 2])),
        (spaces.Tuple([box(1)]), spaces.Tuple([box(2)])),
    ],
)
@pytest.mark.parametrize("pad", [False, True])
def test_what_cannot_be_padded_is_refused(a, b, pad):
    with pytest.raises(UserError, match=r"env\.pad=true cannot pad these: wrap the environment"):
        PythonEnvFactory(lambda index: Two((a, D), (b, D)), pad=pad)
