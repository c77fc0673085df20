"""Compares with PettingZoo itself: its environments by id, and those whose agents take turns."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from gymnasium import spaces

from metta_fast.contracts.errors import UserError
from metta_fast.envs import make_factory
from metta_fast.envs.python_env import PythonEnvFactory, env_seed
from metta_fast.inference.players import RandomPlayer, play
from metta_fast.resolve.compose import compose
from metta_fast.vector import make_vector

zoo = pytest.importorskip("pettingzoo")
pytestmark = pytest.mark.filterwarnings("ignore")

from pettingzoo.utils import AgentSelector, conversions, wrappers  # noqa: E402


class Cycle(zoo.AECEnv):
    """Each agent adds its action to a sum, in turns; agent i leaves in round 2 + i, the second is cut.

    With `masked`, an action that is not the round's remainder by 3 is illegal.
    """

    metadata = {"name": "cycle_v0", "is_parallelizable": True}  # noqa: RUF012
    render_mode = None

    def __init__(self, masked=False):
        self.possible_agents, self.masked = ["a", "b", "c"], masked

    def observation_space(self, agent):
        box = spaces.Box(-99, 99, (2,), np.float32)
        return spaces.Dict(observation=box, action_mask=spaces.MultiBinary(3)) if self.masked else box

    def action_space(self, agent):
        return spaces.Discrete(3)

    def observe(self, agent):
        obs = np.array([self.possible_agents.index(agent), self.sum], np.float32)
        mask = np.arange(3) == self.round % 3 if agent == self.agent_selection else np.zeros(3)
        return {"observation": obs, "action_mask": mask.astype(np.int8)} if self.masked else obs

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.seed = seed % 50
        self.agents, self.sum, self.round = self.possible_agents[:], self.seed, 0
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}
        self.order = AgentSelector(self.agents)
        self.agent_selection = self.order.reset()

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            if self.agents and not any(self.terminations[a] or self.truncations[a] for a in self.agents):
                self.order = AgentSelector(self.agents)
                self.agent_selection = self.order.reset()
            return
        assert not self.masked or action == self.round % 3
        self._cumulative_rewards[agent] = 0
        self.sum += int(action)
        self.rewards = {a: self.sum + i if a == agent else 0 for i, a in enumerate(self.agents)}
        last = self.order.is_last()
        self.agent_selection = self.order.next()
        if last:
            self.round += 1
            for i, a in enumerate(self.possible_agents):
                if a in self.agents and self.round >= 2 + i:
                    (self.truncations if i == 1 else self.terminations)[a] = True
            self._deads_step_first()
        self._accumulate_rewards()


class Turns(Cycle):
    """The same with one agent in each step of the parallel environment."""

    metadata = {"name": "turns_v0", "is_parallelizable": False}  # noqa: RUF012


def played(factory, tape, seed=3):
    """[steps + 1] of {agent: (obs, reward, terminal, truncation)} of live rows, and of the row after an end."""
    names = factory.kind.names
    found = []
    with make_vector(factory, 1) as vec:
        vec.async_reset(seed)
        live = np.zeros(len(names), bool)
        for t in range(len(tape) + 1):
            block = vec.recv()
            rows = vec.rows
            shown = live | rows.mask
            fields = (rows.obs["obs"], rows.reward, rows.terminal, rows.truncation)
            found.append({n: tuple(f[i].tolist() for f in fields) for i, n in enumerate(names) if shown[i]})
            live = rows.mask.copy()
            if not live.any():
                break
            vec.send(block, tape[t][:, None].astype(np.int32))
    return found


def test_agents_that_take_turns_give_what_pettingzoos_conversion_gives():
    tape = np.random.default_rng(0).integers(0, 3, (9, 3))
    for kind, convert in (
        (Cycle, conversions.aec_to_parallel),
        (Turns, conversions.turn_based_aec_to_parallel),
    ):
        game = convert(kind())
        obs, _ = game.reset(seed=env_seed(3, 0))
        wanted = [{agent: (value.tolist(), 0, False, False) for agent, value in obs.items()}]
        for actions in tape:
            acting = game.agents[:]
            obs, rewards, terms, cuts, _ = game.step(dict(zip(game.possible_agents, actions.tolist())))
            wanted.append({a: (obs[a].tolist(), rewards[a], terms[a], cuts[a]) for a in acting})
            if not game.agents:
                break
        assert played(PythonEnvFactory(lambda index, kind=kind: kind()), tape) == wanted
        assert len(wanted) == {Cycle: 5, Turns: 10}[kind]


@pytest.mark.parametrize("kind", [Cycle, Turns])
def test_a_resumed_run_goes_on_with_the_same_turns(kind):
    """Through PettingZoo's conversion and a wrapper that refuses to step what was never reset."""

    class Saved(kind):
        def state_dict(self):
            return pickle.dumps(vars(self))

        def load_state_dict(self, state):
            vars(self).update(pickle.loads(state))

    factory = PythonEnvFactory(lambda index: wrappers.OrderEnforcingWrapper(Saved()))
    assert factory.spec.cheap_state
    assert not PythonEnvFactory(lambda index: kind()).spec.cheap_state
    tape = np.random.default_rng(1).integers(0, 3, (30, 6, 1)).astype(np.int32)

    def step(vec, actions):
        """Steps all; every block is held before and after."""
        found = []
        for action in actions:
            for block in vec.blocks:
                vec.send(block, action[block.start : block.stop])
            vec.hold_all()
            r = vec.rows
            found.append(
                [x.tolist() for x in (r.obs["obs"], r.reward, r.terminal, r.truncation, r.mask, r.reset)]
            )
        return found

    with make_vector(factory, 2) as vec:
        vec.async_reset(1)
        vec.hold_all()
        whole = step(vec, tape)
    for cut in (1, 2, 5, 11, 16):
        with make_vector(factory, 2) as one, make_vector(factory, 2) as two:
            one.async_reset(1)
            one.hold_all()
            step(one, tape[:cut])
            two.load_state_dict(one.state_dict())
            assert step(two, tape[cut:]) == whole[cut:]


def test_returns_are_those_of_pettingzoos_own_loop():
    game = Cycle()
    game.reset(seed=env_seed(5, 0))
    wanted = dict.fromkeys(game.possible_agents, 0)
    for agent in game.agent_iter():
        _, reward, over, cut, _ = game.last()
        wanted[agent] += reward
        game.step(None if over or cut else 1)
    factory = PythonEnvFactory(lambda index: wrappers.OrderEnforcingWrapper(Cycle()))

    class Ones:
        def act(self, rows, batch):
            return np.ones_like(rows.action)

    assert play(factory, Ones(), 1, seed=5).returns.tolist() == list(wanted.values())


@pytest.mark.parametrize("kind", [Cycle, Turns])
def test_masks_reach_the_rows_and_those_who_wait_have_one_choice(kind):
    factory = PythonEnvFactory(lambda index: kind(masked=True))
    assert factory.spec.action_mask
    assert list(factory.spec.obs) == ["observation"]
    if kind is Turns:
        episodes = play(factory, RandomPlayer(factory.spec), 2, seed=0)  # an illegal action raises
        assert episodes.unfinished == 0
        with make_vector(factory, 1) as vec:
            vec.async_reset(0)
            for _ in range(3):  # all have acted, in the round whose only legal action is 0
                vec.send(vec.recv(), np.zeros((3, 1), np.int32))
            vec.recv()
            assert vec.rows.action_mask.tolist() == [[False, True, False]] + [[True, False, False]] * 2
            assert vec.rows.mask.all()


def test_pistonball_gives_its_own_pixels_and_rewards():
    pytest.importorskip("pygame")
    pytest.importorskip("pymunk")
    from pettingzoo.butterfly.pistonball.pistonball import parallel_env

    words = ["env=pettingzoo", "env.id=pettingzoo.butterfly.pistonball_v6"]
    kwargs = {"n_pistons": 3, "max_cycles": 5}
    factory = make_factory(config(*words, *(f"env.kwargs.{key}={value}" for key, value in kwargs.items())))
    assert factory.spec.max_steps == 5
    tape = np.random.default_rng(1).uniform(-1, 1, (5, 3, 1)).astype(np.float32)
    game = parallel_env(**kwargs)
    obs, _ = game.reset(seed=env_seed(2, 0))
    with make_vector(factory, 1) as vec:
        vec.async_reset(2)
        block = vec.recv()
        for t, actions in enumerate(tape):
            vec.send(block, actions)
            block = vec.recv()
            obs, rewards, _, cuts, _ = game.step(dict(zip(game.possible_agents, actions)))
            np.testing.assert_array_equal(vec.rows.obs["obs"], np.stack(list(obs.values())))
            np.testing.assert_array_equal(vec.rows.reward, np.array(list(rewards.values()), np.float32))
            assert vec.rows.truncation.tolist() == list(cuts.values()) == [t == 4] * 3


def config(*words):
    return compose([*words, "hardware=cpu"]).config.env


@pytest.mark.parametrize(
    "words",
    [
        ["env=pettingzoo", "env.id=pettingzoo.classic.rps_v2"],
        ["env=pettingzoo.classic.rps_v2"],
        ["env=classic/rps_v2", "env.kwargs.max_cycles=7"],
        ["env=pettingzoo", "env.id=tests.agents.zoo_module"],
    ],
)
def test_ids(words):
    factory = make_factory(config(*words))
    assert factory.kind.names == ("player_0", "player_1")
    assert factory.spec.max_steps == (7 if len(words) == 2 and "kwargs" in words[1] else 15)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["env.id=pettingzoo.classic.rps_v9"], "did you mean 'classic/rps_v2'"),
        (["env.id=classic/rsp_v2"], "did you mean 'classic/rps_v2'"),
        (["env.id=pettingzoo.mpe.simple_spread_v3"], r"pip install mpe2, then env.id=mpe2.simple_spread_v3"),
        (["env.id=nonesuch.game_v0"], "an id looks like pettingzoo.butterfly.pistonball_v6"),
        (["env.id=os.path"], "has neither parallel_env"),
        (
            ["env.id=classic/rps_v2", "env.kwargs.nonesuch=3"],
            "env.kwargs.nonesuch=3: .* takes no such argument",
        ),
        (["env.id=classic/rps_v2", "env.params.goal=3"], "env.kwargs.goal"),
        (
            ["env.id=classic/rps_v2", "env.wrappers=[builtins:str]"],
            "must return it wrapped; what it returned is str",
        ),
        ([], "needs the environment's id, for example"),
    ],
)
def test_wrong_ids_and_arguments(words, message):
    with pytest.raises(UserError, match=message):
        make_factory(config("env=pettingzoo", *words))
