"""Tests what becomes of agents that end, go away and come back, with environments that give arrays."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from metta_fast.contracts.errors import UserError
from metta_fast.envs.agents.lives import labels
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.vector import make_vector

T, F = True, False


class Script:
    """Two agents that do as `script` says: a line a step, of (live, terminal, truncation). Starts again at its end.

    obs: the time. Rewards: 1 for agent 0, 10 for agent 1, NaN for an agent that was not there.
    """

    num_agents = 2
    observation_space = spaces.Box(0, 99, (1,), np.float32)
    action_space = spaces.Discrete(2)
    first = (T, T)
    script = ()

    def reset(self, seed=None):
        self.t, self.live_agents = 0, np.array(self.first)
        return np.zeros((2, 1), np.float32), {}

    def step(self, actions):
        live, terminal, truncation = (np.array(flags) for flags in self.script[self.t])
        self.t += 1
        obs = np.where(live | terminal | truncation, np.float32(self.t), np.float32(np.nan))[:, None]
        reward = np.where(self.live_agents, [1.0, 10.0], np.nan)
        self.live_agents = live
        return obs, reward, terminal, truncation, {"time": np.array([self.t, -self.t])}

    def state_dict(self):
        return {"t": self.t, "live_agents": self.live_agents}

    def load_state_dict(self, state):
        self.t, self.live_agents = state["t"], state["live_agents"]


class GoesAndComes(Script):
    script = (
        ((T, F), (F, F), (F, F)),  # 1 goes without a flag
        ((T, T), (F, F), (F, F)),  # … and is back
        ((F, T), (T, F), (F, F)),  # 0 ends
        ((F, T), (T, F), (T, F)),  # … whose flags stay
        ((T, F), (F, F), (F, T)),  # 0 is back, 1 is cut
        ((F, F), (F, F), (F, F)),  # 0 goes without a flag: nobody is there, so the environment is reset
    )


class ComesLate(Script):
    first = (F, T)
    script = (((F, T), (F, F), (F, F)), ((T, T), (F, F), (F, F)), ((T, T), (T, T), (F, F)))


class SameStep(Script):
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    script = (((T, T), (T, F), (F, F)), ((T, F), (F, F), (F, T)), ((T, T), (F, F), (F, F))) * 9


def rows_of(kind, steps, **keys):
    """Lists [steps + 1] of (mask, reset, reward, terminal, truncation), each of both agents."""
    with make_vector(PythonEnvFactory(lambda index: kind(), **keys), 1) as vec:
        vec.async_reset(0)
        return list(played(vec, steps)), vec.info_stats(), vec.notes()


def played(vec, steps):
    for t in range(steps + 1):
        block = vec.recv()
        rows = block.rows
        yield tuple(
            getattr(rows, name).tolist() for name in ("mask", "reset", "reward", "terminal", "truncation")
        )
        if t < steps:
            vec.send(block, np.zeros((2, 1), np.int32))


def test_an_agent_that_goes_ends_its_episode_and_begins_one_when_it_is_back():
    rows, stats, notes = rows_of(GoesAndComes, 7)
    assert rows == [
        ([T, T], [T, T], [0, 0], [F, F], [F, F]),
        ([T, F], [F, F], [1, 10], [F, T], [F, F]),
        ([T, T], [F, T], [1, 0], [F, F], [F, F]),
        ([F, T], [F, F], [1, 10], [T, F], [F, F]),
        ([F, T], [F, F], [0, 10], [F, F], [F, F]),
        ([T, F], [T, F], [0, 10], [F, F], [F, T]),
        ([F, F], [F, F], [1, 0], [T, F], [F, F]),
        ([T, T], [T, T], [0, 0], [F, F], [F, F]),
    ]
    assert stats == {"time": np.mean([-1, 3, -5, 6])}
    assert len(notes) == 1
    assert notes[0].startswith("agent 1 went away without terminated or truncated")


def test_an_agent_that_comes_late_begins_its_episode_then():
    rows, _, notes = rows_of(ComesLate, 4)
    assert [row[:4] for row in rows] == [
        ([F, T], [F, T], [0, 0], [F, F]),
        ([F, T], [F, F], [0, 10], [F, F]),
        ([T, T], [T, F], [0, 10], [F, F]),
        ([F, F], [F, F], [1, 10], [T, T]),
        ([F, T], [F, T], [0, 0], [F, F]),
    ]
    assert notes == []


def test_a_reset_in_the_middle_begins_all_episodes():
    with make_vector(PythonEnvFactory(lambda index: GoesAndComes()), 1) as vec:
        vec.async_reset(0)
        list(played(vec, 2))
        vec.async_reset(0)
        assert list(played(vec, 1)) == [
            ([T, T], [T, T], [0, 0], [F, F], [F, F]),
            ([T, F], [F, F], [1, 10], [F, T], [F, F]),
        ]


def test_agents_that_are_reset_in_the_same_step():
    rows, _, _ = rows_of(SameStep, 3, has_final_obs=False)
    assert rows == [
        ([T, T], [T, T], [0, 0], [F, F], [F, F]),
        ([T, T], [T, F], [1, 10], [T, F], [F, F]),
        ([T, F], [F, F], [1, 10], [F, F], [F, T]),
        ([T, T], [F, T], [1, 0], [F, F], [F, F]),
    ]
    with pytest.raises(UserError, match="has_final_obs=False"):
        PythonEnvFactory(lambda index: SameStep())


@pytest.mark.parametrize("kind", [GoesAndComes, ComesLate])
def test_a_resumed_run_goes_on_with_the_same_lives(kind):
    factory = PythonEnvFactory(lambda index: kind())
    for cut in range(1, 5):
        with make_vector(factory, 1) as one, make_vector(factory, 1) as two:
            one.async_reset(0)
            list(played(one, cut))
            two.load_state_dict(one.state_dict())
            block = one.hold_all()[0], two.hold_all()[0]
            for vec, held in zip((one, two), block):
                vec.send(held, np.zeros((2, 1), np.int32))
            assert list(played(one, 6)) == list(played(two, 6))


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["a_0", "a_1"], ("a_0", "a_1")),
        ([f"piston_{i}" for i in range(20)], tuple(f"piston_{i}" for i in range(20))),
        ([f"piston_{i}" for i in range(30)], ()),
        (
            [f"archer_{i}" for i in range(19)] + [f"knight_{i}" for i in range(9)],
            ("archer",) * 19 + ("knight",) * 9,
        ),
        (["first", "second"] * 1, ("first", "second")),
        (["only"], ()),
        ([f"{c}x" for c in "abcdefghijklmnopqrstuvwxyz"], ()),
        ([], ()),
    ],
)
def test_what_statistics_of_agents_are_called(names, found):
    assert labels(names) == found
