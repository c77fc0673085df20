"""Steps Python environments one after another, and writes the numbers of all of them at once.

Place in the flow: PythonEnvFactory (python_env.py) makes a batch; python_slot.py and agents/ step one environment each.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from metta_fast.contracts import batch_state as states
from metta_fast.contracts import progress
from metta_fast.contracts.env import Array, Rows
from metta_fast.contracts.errors import UserError
from metta_fast.envs.actions import ActionDecoder
from metta_fast.envs.agents.lives import Lives
from metta_fast.envs.agents.slot import AgentsSlot
from metta_fast.envs.info_stats import InfoStats
from metta_fast.envs.python_checks import close_env
from metta_fast.envs.python_slot import Made, OneAgent


class PythonBatch:
    """Steps Python environments one after another (`metta_fast.contracts.env.EnvBatch`)."""

    rows: Rows

    def __init__(self, factory: Made, first_env: int, num_envs: int) -> None:
        self.factory, self.spec = factory, factory.spec
        self._decoder = ActionDecoder(factory.action_space)
        self.info = InfoStats(self.spec.stats, self.spec.agents_per_env)
        kind = factory.kind
        agents = self.spec.agents_per_env
        slot = kind.slot or OneAgent
        self.lives: Lives | None = None
        if kind.slot is not None:
            self.lives = Lives(
                num_envs, agents, same_step=factory.same_step, names=[str(n) for n in kind.names]
            )
        self.envs: list[Any] = []
        try:
            for i in range(num_envs):
                env = slot(factory, first_env + i)
                self.envs.append(env)
                env.note = partial(self.info.add, i)
                if self.lives is not None:
                    assert isinstance(env, AgentsSlot)
                    env.note_agents = partial(self.info.add_agents, i)
                    env.own_results = partial(self.lives.results, i)
                progress.made()
        except BaseException:  # one cannot be made, or a signal came
            with suppress(Exception):
                self.close()
            raise

    def bind(self, rows: Rows) -> None:
        self.rows = rows
        a = self.spec.agents_per_env
        for i, env in enumerate(self.envs):
            env.bind(rows.slice(i * a, (i + 1) * a))
        if self.lives is not None:
            self.lives.bind(rows)

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        """Resets each environment with its own seed; `stagger` has no effect here."""
        lives = self.lives
        if lives is not None:
            lives.begin()
        for env in self.envs:
            env.guard(env.reset, env_seed(seed, env.index))
        if lives is not None:
            self._settle(lives)

    def step(self) -> None:
        if self.lives is None:
            self._step_each()
            return
        for env in self.envs:
            env.guard(env.restart if env.ended else env.step)
        self._settle(self.lives)

    def _settle(self, lives: Lives) -> None:
        """Makes the rows of agents of what the environments have written; takes the statistics of episodes that
        ended."""
        ended = lives.settle()
        if ended is not None:
            by_env = ended.reshape(len(self.envs), -1)
            for i in np.flatnonzero(by_env.any(1)).tolist():
                self.envs[i].guard(self.envs[i].finish, by_env[i])
            lives.forget(ended)
        if not self.factory.same_step:
            for env, there in zip(self.envs, lives.any_there()):
                env.ended = not there

    def _step_each(self) -> None:
        """Steps environments of one agent. Writes the numbers of all environments at once: NumPy is slow for single
        ones."""
        rows = self.rows
        actions = self._decoder.each(rows.action)
        rows.terminal[:] = rows.truncation[:] = rows.reset[:] = False
        rows.mask[:] = True
        rewards = []
        for env, action in zip(self.envs, actions):
            try:
                rewards.append(env.restart(action) if env.ended else env.step(action))
            except BaseException as error:
                env.fail(error)
        rows.reward[:] = rewards

    def native_job(self) -> None:
        return None

    def notes(self) -> dict[str, str]:
        """Returns messages about environments of several agents."""
        found = dict(self.lives.notes) if self.lives is not None else {}
        for env in self.envs:
            found |= {kind: text for kind, text in env.notes.items() if kind not in found}
        return found

    def info_sums(self) -> dict[str, tuple[float, int]]:
        return self.info.sums()

    def last_info(self) -> dict[int, dict[str, Array]]:
        return self.info.last()

    def time_steps(self, seconds: list[float]) -> None:
        """From now on, appends the seconds of each call of an environment's own `step` to `seconds`."""
        for env in self.envs:
            env.call = _timed(env.call, seconds)

    def on_mask(self, call: Callable[[], None]) -> None:
        """From now on, calls this function for an action mask in info that is not used, in place of an error."""
        for env in self.envs:
            env.found_mask = call

    def state_dict(self) -> dict[str, Any]:
        """Returns what the environments return, uncopied: the vector copies it, or sends it to another process."""
        self._check_states()
        return {
            "env": [env.guarded("state_dict", env.env.state_dict) for env in self.envs],
            "held": [env.held for env in self.envs],
            "ended": np.array([env.ended for env in self.envs]),
            **({} if self.lives is None else self.lives.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Gives each environment a copy of its state: it may keep the arrays and go on in them."""
        self._check_states()
        for i, env in enumerate(self.envs):
            env.guarded("load_state_dict", env.env.load_state_dict, states.copied(state["env"][i]))
            env.held, env.ended = states.copied(state["held"][i]), bool(state["ended"][i])
            if self.lives is not None:
                env.guarded("agents", env.loaded)
        if self.lives is not None:
            self.lives.load_state_dict(state)

    def _check_states(self) -> None:
        if not self.spec.cheap_state:
            raise UserError(
                f"{self.spec.name}: its state cannot be saved, for the environment has no state_dict and "
                "load_state_dict; without them a resumed run starts new episodes"
            )

    def close(self) -> None:
        """Closes all environments. Raises EnvError if one raises, after all were closed."""
        with ExitStack() as stack:
            for env in self.envs:
                stack.callback(close_env, env.env, env.index)


def _timed(step: Callable[[Any], Any], seconds: list[float]) -> Callable[[Any], Any]:
    def timed(action: Any) -> Any:
        start = perf_counter()
        result = step(action)
        seconds.append(perf_counter() - start)
        return result

    return timed


def env_seed(seed: int, index: int) -> int:
    """Returns the seed of the environment with this global index: 31 bits hashed from both (by SeedSequence)."""
    return int(np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(1)[0] >> 1)
