"""Tests that a snapshot keeps its values while the environments go on, and that loading one leaves it unchanged."""

from __future__ import annotations

import copy
import pickle

import gymnasium
import numpy as np
import pytest

from metta_fast.contracts.batch_state import copied
from metta_fast.contracts.errors import UserError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.vector import make_vector
from tests.vector.suite import BACKENDS, FACTORIES, assert_states_equal, play, tape_for


class Live:
    """Returns its own arrays as observation and as state, keeps those that it is given, and resets itself."""

    metadata = {"autoreset_mode": "SameStep"}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, index):
        self.obs, self.seen, self.steps = np.zeros(2, np.float32), {"past": [np.zeros(3), []]}, [0]

    def reset(self, seed=None):
        self.obs[:] = 100
        return self.obs, {}

    def step(self, action):
        self.steps[0] += 1
        self.seen["past"][0] += 1
        self.seen["past"][1].append(self.steps[0])
        last = self.obs + 1
        ends = self.steps[0] % 3 == 0
        self.obs[:] = 100 if ends else last
        return self.obs, 0.0, ends, False, {"final_obs": last} if ends else {}

    def close(self):
        pass

    def state_dict(self):
        return {"obs": self.obs, "seen": self.seen, "steps": self.steps}

    def load_state_dict(self, state):
        self.obs, self.seen, self.steps = state["obs"], state["seen"], state["steps"]


def live_factory():
    return PythonEnvFactory(Live, name="live")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [*FACTORIES, "live"])
def test_a_snapshot_keeps_its_values(kind, backend):
    """It is read after the environments went on, and compared with a state that was read at once."""
    factory = live_factory() if kind == "live" else FACTORIES[kind]()
    tape = tape_for(factory.spec, 12, 8)
    with make_vector(factory, 8, num_blocks=3, **BACKENDS[backend]) as vec:
        vec.async_reset(1)
        play(vec, tape[:4])
        later, at_once = vec.snapshot(), pickle.dumps(vec.state_dict())
        play(vec, tape[4:], first=False)
        assert_states_equal(later(), pickle.loads(at_once))
        changed = pickle.dumps(vec.state_dict())
    assert changed != at_once


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_loading_a_state_leaves_it_as_it_is(backend):
    """Twice from one state: the environments go on in copies."""
    tape = tape_for(live_factory().spec, 8, 4)
    with make_vector(live_factory(), 4, num_blocks=2, **BACKENDS[backend]) as vec:
        vec.async_reset(1)
        play(vec, tape[:3])  # the third step ends an episode: a first observation is held
        state = vec.state_dict()
        assert all(held is not None for held in state["envs"]["held"])
        before = copy.deepcopy(state)
        rows = []
        for _ in range(2):
            vec.load_state_dict(state)
            rows.append(play(vec, tape[3:], first=False)["obs/obs"])
            assert_states_equal(state, before)
    np.testing.assert_array_equal(*rows)


def test_what_cannot_be_copied_is_named():
    with pytest.raises(UserError, match=r"holds a generator, which cannot be copied .* return plain values"):
        copied({"a": [(i for i in range(3))]})
