"""Steps MettaGrid's simulations one after another. Each writes its observations into rows of the slab.

Rewards and flags are a few bytes of the batch's own, from which Lives (envs/agents/lives.py) makes rows: next-step, so
the row after an episode's last action has the true last observation, masked, and the call after that starts the
next episode and ignores the action.

Place in the flow: factory.py makes a batch; game.py holds one environment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from metta_fast.config.extension import described
from metta_fast.contracts import progress
from metta_fast.contracts.env import Array, EnvError, EnvSpec, Rows
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.agents.lives import Lives
from metta_fast.envs.info_stats import InfoStats
from metta_fast.envs.mettagrid.game import Game, new_buffers

if TYPE_CHECKING:
    from mettagrid.config.mettagrid_config import MettaGridConfig

BUFFERS: dict[str, Any] = {"rewards": np.float32, "terminals": np.bool_, "truncations": np.bool_}

BUDGET = "token budget exceeded"
"""In the simulator's error for an observation that has more tokens than the configuration allows."""


class Made(Protocol):
    """Declares the attributes of MettaGridFactory that a batch reads."""

    config: MettaGridConfig
    spec: EnvSpec
    vibes: Array


class MettaGridBatch:
    """Steps environments first_env … first_env+num_envs−1; N = num_envs · agents rows."""

    rows: Rows

    def __init__(self, factory: Made, first_env: int, num_envs: int) -> None:
        self.factory, self.spec = factory, factory.spec
        self.first_env, self.num_envs = first_env, num_envs
        self.lives = Lives(num_envs, self.spec.agents_per_env)
        self.info = InfoStats((), self.spec.agents_per_env)
        self.games: list[Game] = []
        self._seconds: list[float] | None = None
        size = num_envs * self.spec.agents_per_env
        self._actions, self._vibes = np.zeros(size, np.int32), np.zeros(size, np.int32)
        self._given: dict[str, Array] = {name: np.zeros(size, dtype) for name, dtype in BUFFERS.items()}
        self._over = [False] * num_envs
        """The environment's episode is over: the next call starts another."""

    def bind(self, rows: Rows) -> None:
        """Takes the rows. Environments that were made already keep writing to those that they got, and are copied."""
        self.rows = rows
        self.lives.bind(rows)
        if self.games:
            return
        self._home = rows.obs["obs"]
        n = self.spec.agents_per_env
        for i in range(self.num_envs):
            own = slice(i * n, (i + 1) * n)
            flags = {name: values[own] for name, values in self._given.items()}
            buffers = new_buffers(self._home[own], self._actions[own], self._vibes[own], flags)
            self.games.append(Game(self.factory.config, self.first_env + i, buffers))

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        """Starts each environment's first episode; `stagger` has no effect here."""
        self.lives.begin()
        self.rows.mask[:] = True
        for i, game in enumerate(self.games):
            self._start(i, partial(game.begin, seed))
            progress.made()
        self._settle()

    def step(self) -> None:
        action, n = self.rows.action, self.spec.agents_per_env
        self._actions[:] = action[:, 0]
        if len(self.factory.vibes):
            self._vibes[:] = self.factory.vibes[action[:, 1]]
        seconds = self._seconds
        for i, game in enumerate(self.games):
            if self._over[i]:
                self._start(i, game.begin_next)
                self.rows.mask[i * n : (i + 1) * n] = True
                continue
            begin = perf_counter() if seconds is not None else 0.0
            try:
                game.step()
            except BaseException as error:
                self._fail(i, error)
            if seconds is not None:
                seconds.append(perf_counter() - begin)
        self._settle()

    def _start(self, i: int, begin: Callable[[], None]) -> None:
        self._over[i] = False
        try:
            begin()
        except BaseException as error:
            self._fail(i, error)

    def _settle(self) -> None:
        """Makes rows of what the simulations have written."""
        rows, given = self.rows, self._given
        rows.reward[:], rows.terminal[:] = given["rewards"], given["terminals"]
        rows.truncation[:] = given["truncations"]
        if rows.obs["obs"] is not self._home:
            rows.obs["obs"][...] = self._home
        ended = self.lives.settle()
        if ended is None:
            return
        by_env = ended.reshape(self.num_envs, -1)
        for i in np.flatnonzero(by_env.any(1)).tolist():
            try:
                self.info.add(i, self.games[i].stats(), by_env[i])
                self._over[i] = self.games[i].over()
            except BaseException as error:
                self._fail(i, error)
        self.lives.forget(ended)

    def _fail(self, i: int, error: BaseException) -> NoReturn:
        """Raises EnvError for an error in a simulation, with the environment's index."""
        if is_interrupt(error):
            raise error
        index = self.first_env + i
        cure = "; give env.params.game.obs.num_tokens=… a larger number" if BUDGET in str(error) else ""
        raise EnvError(f"environment {index} raised {described(error)}{cure}", index) from error

    def native_job(self) -> None:
        return None

    def notes(self) -> dict[str, str]:
        return dict(self.lives.notes)

    def info_sums(self) -> dict[str, tuple[float, int]]:
        return self.info.sums()

    def last_info(self) -> dict[int, dict[str, Array]]:
        return self.info.last()

    def time_steps(self, seconds: list[float]) -> None:
        """From now on, appends the seconds of each call of a simulation's step to `seconds`."""
        self._seconds = seconds

    def state_dict(self) -> dict[str, Any]:
        raise UserError(
            f"{self.spec.name}: its state cannot be saved, for MettaGrid's simulator has no such function; a resumed "
            "run starts new episodes"
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state_dict()

    def close(self) -> None:
        for game in self.games:
            game.close()
