"""Environments with PettingZoo's parallel API for tests, and the rows that they must give, by a plain loop."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from metta_fast.envs.python_env import env_seed


class Game:
    """Agents that do as `script` says: [episode][step][agent], one letter each.

    L  there                                 .  not there: nothing is said of it
    T  terminated   C  truncated             a  not there, but NaN is said of it
    c  truncated, without an observation     N  terminated, with an observation of NaN
    S  terminated, but still in `agents`

    Step 0 is the reset. After the last step all agents are truncated. obs: [agent, time, its last action]; the reward
    depends on all of them. Discrete actions begin at 5.
    """

    start = 5

    def __init__(self, script, names=None):
        self.script = script
        self.possible_agents = list(names or [f"agent_{i}" for i in range(len(script[0][0]))])
        self.episode = -1
        self.closed = False

    def observation_space(self, agent):
        return spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(4, start=self.start)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.seed = seed % 1000
        self.episode += 1
        self.t = 0
        return self._say({})[0::4]

    def step(self, actions):
        assert set(actions) == set(self.agents)
        assert all(self.action_space(agent).contains(action) for agent, action in actions.items())
        self.t += 1
        return self._say(actions)

    def _say(self, actions):
        script = self.script[self.episode % len(self.script)]
        now = script[self.t] if self.t < len(script) else "C" * len(self.possible_agents)
        obs, rewards, terms, cuts, infos = {}, {}, {}, {}, {}
        self.agents = []
        for i, (agent, state) in enumerate(zip(self.possible_agents, now)):
            if state in "LS":
                self.agents.append(agent)
            if state == ".":
                continue
            action = float(actions.get(agent, -1))
            nan = state in "aN"
            obs[agent] = np.array([i, self.t, np.nan if nan else action], np.float32)
            rewards[agent] = np.nan if state == "a" else self.seed + 10 * i + self.t + action / 8
            terms[agent], cuts[agent] = state in "TNS", state in "Cc"
            infos[agent] = {"time": self.t, "text": "x"}
            if state == "c":
                del obs[agent]
        return obs, rewards, terms, cuts, infos

    def close(self):
        self.closed = True


def drawn(rng, agents, episodes=3, steps=7):
    """A random script: somebody is there at each reset."""
    script = []
    for _ in range(episodes):
        first = "".join(rng.choice(list("LLL."), agents))
        first = first if "L" in first else "L" * agents
        rest = ["".join(rng.choice(list("LLLLLL..aTCcNS"), agents)) for _ in range(rng.integers(1, steps))]
        script.append([first, *rest])
    return script


NAMES = ("obs", "mask", "reset", "reward", "terminal", "truncation")


def expected(game, seed, index, tape):
    """The rows [len(tape) + 1] of environment `index`, each {name: [n, …]}: a plain loop over the environment.

    tape: [steps, n] actions, counted from 0.
    """
    names = game.possible_agents
    obs, _ = game.reset(seed=env_seed(seed, index))
    rewards, terms, cuts = {}, {}, {}
    acted = dict.fromkeys(names, False)
    found = []
    for t in range(len(tape) + 1):
        rows = {name: [] for name in NAMES}
        for agent in names:
            end, cut = terms.get(agent, False), cuts.get(agent, False)
            there = agent in game.agents and not end and not cut
            if acted[agent]:
                reward, reset = rewards.get(agent, 0.0), False
                end = end or not (there or cut) or (cut and agent not in obs)
            else:
                reward, end, cut, reset = 0.0, False, False, there
            acted[agent] = there
            shown = obs.get(agent, np.zeros(3, np.float32))
            for name, value in zip(NAMES, (shown, there, reset, reward, end, cut)):
                rows[name].append(value)
        found.append(
            {
                name: np.array(values, "f4" if name in ("obs", "reward") else bool)
                for name, values in rows.items()
            }
        )
        if t == len(tape):
            break
        if not any(acted.values()):
            obs, _ = game.reset()
            rewards, terms, cuts = {}, {}, {}
        else:
            actions = {a: np.int64(game.start + tape[t][i]) for i, a in enumerate(names) if a in game.agents}
            obs, rewards, terms, cuts, _ = game.step(actions)
    return found


def played(vec, tape):
    """The rows [len(tape) + 1] of all agents of a vector, each {name: [N, …]}; tape: [steps, N]."""
    found = []
    for t in range(len(tape) + 1):
        for block in vec.hold_all():
            if t < len(tape):
                block.rows.action[:] = tape[t][block.start : block.stop, None]
        rows = vec.rows
        found.append(
            {name: (rows.obs["obs"] if name == "obs" else getattr(rows, name)).copy() for name in NAMES}
        )
        for block in vec.blocks if t < len(tape) else ():
            vec.send(block)
    return found


def assert_same(found, wanted):
    assert len(found) == len(wanted)
    for t, (own, other) in enumerate(zip(found, wanted)):
        for name in NAMES:
            np.testing.assert_array_equal(own[name], other[name], err_msg=f"{name} of row {t}")
