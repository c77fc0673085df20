"""Compares rows of PettingZoo's parallel API with a plain loop over the environment, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from metta_fast.contracts.env import EnvError
from metta_fast.contracts.vector import WorkerError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.repeat import repeated
from metta_fast.inference.players import play
from metta_fast.vector import make_vector
from tests.agents.games import Game, assert_same, drawn, expected, played

FIRST = st.sampled_from("LL.")
LATER = st.sampled_from("LLLL..aTCcNS")


@st.composite
def scripts(draw, agents):
    def episode():
        first = draw(st.lists(FIRST, min_size=agents, max_size=agents))
        first = first if "L" in first else ["L"] * agents
        rest = draw(st.lists(st.lists(LATER, min_size=agents, max_size=agents), max_size=6))
        return ["".join(step) for step in [first, *rest]]

    return [episode() for _ in range(draw(st.integers(1, 3)))]


@settings(max_examples=80, deadline=None)
@given(st.data(), st.integers(1, 4))
def test_agents_come_and_go_as_in_a_plain_loop(data, agents):
    script = data.draw(scripts(agents))
    tape = np.random.default_rng(len(script)).integers(0, 4, (12, agents))
    factory = PythonEnvFactory(lambda index: Game(script))
    with make_vector(factory, 1) as vec:
        vec.async_reset(7)
        found = played(vec, tape)
    assert_same(found, expected(Game(script), 7, 0, tape))


@pytest.mark.parametrize(
    ("backend", "keys"),
    [
        ("serial", {"num_blocks": 2}),
        ("threads", {"num_threads": 2, "num_blocks": 3}),
        ("workers", {"num_workers": 2, "num_blocks": 2}),
    ],
)
def test_every_backend_gives_the_rows_of_the_plain_loop(backend, keys):
    envs, agents, rng = 6, 3, np.random.default_rng(1)
    all_scripts = [drawn(rng, agents) for _ in range(envs)]
    tape = rng.integers(0, 4, (30, envs * agents))
    factory = PythonEnvFactory(lambda index: Game(all_scripts[index]))
    with make_vector(factory, envs, backend=backend, **keys) as vec:
        vec.async_reset(3)
        found = played(vec, tape)
        notes = vec.notes()
    for i, script in enumerate(all_scripts):
        own = slice(i * agents, (i + 1) * agents)
        assert_same(
            [{name: rows[own] for name, rows in step.items()} for step in found],
            expected(Game(script), 3, i, tape[:, own]),
        )
    assert sum("went away without terminated or truncated" in note for note in notes) == 1
    assert sum("no observation of it: nothing to bootstrap" in note for note in notes) == 1


def factory_of(*script, **keys):
    return PythonEnvFactory(lambda index: Game([list(script)]), **keys)


def test_statistics_by_agent():
    with make_vector(factory_of("LL", "LT", "CC", stats=("time",)), 1) as vec:
        vec.async_reset(0)
        rows = played(vec, np.zeros((5, 2), int))  # two episodes of the environment, which are alike
        stats = vec.info_stats()
        assert vec.rows.stats.shape == (2, 1)
    sums = np.sum([step["reward"] for step in rows], 0) / 2
    assert stats == {
        "return/agent_0": sums[0],
        "return/agent_1": sums[1],
        "length/agent_0": 2.0,
        "length/agent_1": 1.0,
    }
    with make_vector(factory_of("LL", "LT", "CC"), 1) as vec:
        vec.async_reset(0)
        played(vec, np.zeros((3, 2), int))
        assert vec.info_stats()["time"] == 1.5


def test_an_evaluation_leaves_out_agents_that_an_episode_does_not_have():
    found = play(factory_of("L.", "LL", "CC", "L.", "C."), Zeros(), 1, seed=0)
    assert found.lengths.tolist() == [2, 1]
    found = play(factory_of("L..", "L..", "CL.", ".C."), Zeros(), 2, seed=0)
    assert found.lengths.tolist() == [2, 1, 0] * 2
    assert np.isnan(found.returns).tolist() == [False, False, True] * 2
    assert found.unfinished == 0
    assert found.means()["length"] == 1.5
    assert np.isfinite(found.error("return"))


class Zeros:
    """Takes the first action."""

    def act(self, rows, batch):
        return np.zeros_like(rows.action)


def test_repeated_actions_end_where_an_agent_goes_or_comes():
    """Steps 1 and 2 are one row; in step 3 agent 1 goes, which ends the repetition, and in step 4 it comes."""
    with make_vector(repeated(factory_of("LL", "LL", "LL", "L.", "LL", "LL", "CC"), 2), 1) as vec:
        vec.async_reset(0)
        rows = played(vec, np.zeros((4, 2), int))
    assert [step["obs"][0, 1] for step in rows] == [0, 2, 3, 4, 6]
    assert [step["mask"].tolist() for step in rows] == [[True, True]] * 2 + [
        [True, False],
        [True] * 2,
        [False] * 2,
    ]
    assert rows[3]["reset"].tolist() == [False, True]


class Saved(Game):
    """A game that can be saved."""

    def state_dict(self):
        return {"t": self.t, "episode": self.episode, "seed": self.seed, "agents": list(self.agents)}

    def load_state_dict(self, state):
        for name, value in state.items():
            setattr(self, name, value)


def test_a_resumed_run_goes_on_with_the_same_agents():
    rng = np.random.default_rng(4)
    scripts_, tape = [drawn(rng, 3) for _ in range(3)], rng.integers(0, 4, (14, 9))
    factory = PythonEnvFactory(lambda index: Saved(scripts_[index]))
    assert factory.spec.cheap_state
    with make_vector(factory, 3) as vec:
        vec.async_reset(1)
        whole = played(vec, tape)
    for cut in range(1, 12, 2):
        with make_vector(factory, 3) as one, make_vector(factory, 3, num_blocks=2) as two:
            one.async_reset(1)
            played(one, tape[:cut])
            two.load_state_dict(one.state_dict())
            assert_same(played(two, tape[cut:]), whole[cut:])


def test_the_environment_is_closed():
    vec = make_vector(factory_of("L", "C"), 1)
    game = vec.batches[0].envs[0].env
    vec.close()
    assert game.closed


def broken(**methods):
    """A game with other methods."""
    return lambda index: type("Broken", (Game,), methods)([["LL", "LL", "LL"]])


def no_obs(self, seed=None, options=None):
    self.agents = list(self.possible_agents)
    return {"agent_0": np.zeros(3, np.float32)}, {}


def stranger(self, seed=None, options=None):
    self.agents = ["agent_9"]
    return {"agent_9": np.zeros(3, np.float32)}, {}


def nobody(self, seed=None, options=None):
    self.agents = []
    return {}, {}


def wide(self, seed=None, options=None):
    self.agents = list(self.possible_agents)
    return {agent: np.zeros(4, np.float32) for agent in self.agents}, {}


def stepped(**changed):
    def step(self, actions):
        names = ("obs", "rewards", "terms", "cuts", "infos")
        return tuple((dict(zip(names, Game.step(self, actions))) | changed).values())

    return step


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"reset": no_obs}, "agent 'agent_1' is in agents, but there is no observation of it"),
        ({"reset": stranger}, "agent 'agent_9' has come, and possible_agents does not have it"),
        ({"reset": nobody}, r"reset\(\) left nobody in agents"),
        ({"reset": wide}, r"observation 'obs' has shape \(4,\), expected \(3,\)"),
        ({"reset": lambda self, seed=None: ({}, {}, {})}, "tuple of 3"),
        ({"reset": lambda self, seed=None: (np.zeros(3), {})}, "is ndarray, expected a dict by agent"),
        ({"step": lambda self, actions: ({}, 0.0, False, {})}, r"step\(\) gave a tuple of 4"),
        ({"step": stepped(rewards=1.0)}, r"rewards of step\(\) is float, expected a dict by agent"),
        (
            {"step": stepped(rewards={"agent_0": "much"})},
            "reward of agent 'agent_0' is 'much', expected a number",
        ),
        ({"step": stepped(terms={"agent_1": 1.0})}, "termination of agent 'agent_1' is 1.0, expected a bool"),
    ],
)
def test_what_an_environment_does_wrong_is_named(methods, message):
    with make_vector(PythonEnvFactory(broken(**methods)), 1) as vec:
        vec.async_reset(0)
        with pytest.raises(WorkerError, match=f"environment 0 .*{message}"):
            played(vec, np.zeros((1, 2), int))


def test_other_forms_of_values():
    """Lists, wider numbers, shapes () and Discrete: what a space accepts is converted agent by agent."""

    class Forms(Game):
        def observation_space(self, agent):
            return spaces.Dict(
                a=spaces.Box(-9, 9, (2,), np.float32),
                b=spaces.Box(-9, 9, (), np.float32),
                c=spaces.Discrete(3, start=2),
            )

        def _say(self, actions):
            obs, *rest = super()._say(actions)
            given = {"a": [1, 2], "b": np.float32(4), "c": 3}
            return dict.fromkeys(obs, given), *rest

    factory = PythonEnvFactory(lambda index: Forms([["L.", "LL"]]))
    with make_vector(factory, 1) as vec:
        vec.async_reset(0)
        vec.hold_all()
        obs = {name: rows.tolist() for name, rows in vec.rows.obs.items()}
    assert obs == {"a": [[1, 2], [0, 0]], "b": [[4], [0]], "c": [[0, 1, 0], [0, 0, 0]]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"possible_agents": []}, "with possible_agents=\\[\\]: set self.possible_agents"),
        ({"possible_agents": ["a", "a"]}, "has an agent twice"),
        ({"step": None}, r"without step\(\), so neither a ParallelEnv nor an AECEnv"),
        ({"observation_space": lambda agent: None}, "gave NoneType, expected a space of Gymnasium"),
    ],
)
def test_what_is_no_environment_is_named(changed, message):
    def make(index):
        game = Game([["LL"]])
        for name, value in changed.items():
            setattr(game, name, value)
        return game

    with pytest.raises(EnvError, match=message):
        PythonEnvFactory(make)
