"""Trains native PufferEnvs: environments that step an array of agents and reset each of them themselves.

    factory = NativeFactory(Creator(make, {"size": 8}), name="tracks")

The environment's observations are rows of the slab, and so are its actions where it takes them as they are (Discrete,
MultiDiscrete). Rewards and flags are a few bytes of its own, from which Lives (envs/agents/lives.py) makes rows: an
agent that was reset in the step has no masked row and no final observation; one whose entry of `masks` is False is not
there, and begins a new episode when it comes back. A class derived from an emulated one leaves the last observation in
the row and is reset by the next call: that row is masked.

Place in the flow: envs/adapters/pufferlib.py makes the factory. Emulated environments themselves are taken apart there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from metta_fast.config.extension import described
from metta_fast.contracts import progress
from metta_fast.contracts.env import Array, EnvError, EnvSpec, Rows
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.actions import ActionDecoder, action_spec
from metta_fast.envs.agents.lives import Lives
from metta_fast.envs.episode_length import episode_length
from metta_fast.envs.observed.leaf_kinds import with_kinds
from metta_fast.envs.puffer.guard import unchanged
from metta_fast.envs.puffer.infos import InfoSums
from metta_fast.envs.puffer.placed import PlacedEnv, Shape, action_dtype, is_emulated
from metta_fast.envs.python_batch import env_seed
from metta_fast.envs.python_checks import close_env
from metta_fast.envs.spaces import FieldError, observation_parts

if TYPE_CHECKING:
    from metta_fast.contracts.recording import Recorder

MAKE_SEED = 0
"""The seed of a run is not known when environments are made: they get their index here, and the run's seed at reset."""


@dataclass(frozen=True)
class Creator:
    """Makes PufferEnvs: make(buf=…, seed=…, **kwargs). cloudpickle takes it to workers."""

    make: Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, buf: Mapping[str, Array] | None = None, seed: int = MAKE_SEED) -> Any:
        with unchanged():
            return self.make(buf=buf, seed=seed, **self.kwargs)


class NativeFactory:
    """Makes batches of native PufferEnvs (contracts/env.py: EnvFactory).

    Args:
        first: an environment, whose spaces are read; the caller closes it.
        leaf_kinds: {"obs": "image"}: env.leaf_kinds.
    """

    def __init__(
        self, creator: Creator, first: Any, *, name: str, leaf_kinds: Mapping[str, str] | None = None
    ) -> None:
        self.creator, self.shape = creator, Shape.of(first)
        self.observation_space, self.action_space = self.shape.observation_space, self.shape.action_space
        declared = (getattr(first, "metadata", None) or {}).get("kinds", {})
        self.parts = with_kinds(observation_parts(self.observation_space), declared, leaf_kinds)
        self.kind_reasons = {part.name: part.reason for part in self.parts}
        self._renders = getattr(first, "render_mode", None) == "rgb_array"
        self.spec = EnvSpec(
            name=name,
            agents_per_env=self.shape.agents,
            obs={part.name: part.leaf for part in self.parts},
            action=action_spec(self.action_space),
            max_steps=episode_length(first),
            has_final_obs=is_emulated(first),
            notes=True,
            info_stats=True,
        )

    def has_state(self) -> bool:
        return False

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> NativeBatch:
        """`total_envs` has no effect: these environments are not staggered."""
        return NativeBatch(self, first_env, num_envs)

    def make_recorder(self, batch: NativeBatch) -> Recorder | None:
        """Returns a recorder of the environment's rendered images; None unless its render_mode is "rgb_array"."""
        from metta_fast.envs.frame_recorder import FrameRecorder

        return FrameRecorder(lambda: batch.envs[0].env.render()) if self._renders else None


class NativeBatch:
    """Steps native PufferEnvs one after another. They are made when their rows are there."""

    rows: Rows

    def __init__(self, factory: NativeFactory, first_env: int, num_envs: int) -> None:
        self.factory, self.spec = factory, factory.spec
        self.first_env, self.num_envs = first_env, num_envs
        self.envs: list[PlacedEnv] = []
        self.lives = Lives(num_envs, self.spec.agents_per_env, same_step=True)
        self.infos = InfoSums()
        self._last: dict[int, list[Any]] = {}
        self._seconds: list[float] | None = None
        n, space = num_envs * self.spec.agents_per_env, factory.action_space
        self._reward = np.zeros(n, np.float32)
        self._final = np.zeros(n, np.bool_)
        """[N] True: a flag in this row leaves the last observation there: a later call resets."""
        self._flags = {name: np.zeros(n, np.bool_) for name in ("terminals", "truncations", "masks")}
        self._actions = np.zeros((n, *(space.shape or ())), action_dtype(space))
        self._decoder = None if _counts_from_0(self.spec) else ActionDecoder(space)

    def bind(self, rows: Rows) -> None:
        """Takes the rows. Environments that were made already keep writing to those that they got, and are copied."""
        self.rows = rows
        if self.envs:
            return
        self._home = rows
        if self._decoder is None:
            self._actions = rows.action.reshape(self._actions.shape)
        try:
            for i in range(self.num_envs):
                self.envs.append(self._make(i))
                progress.made()
        except BaseException:  # one cannot be made, or a signal came
            with suppress(Exception):
                self.close()
            raise
        self.lives.bind(rows)

    def _make(self, i: int) -> PlacedEnv:
        index, agents = self.first_env + i, self.spec.agents_per_env
        here = slice(i * agents, (i + 1) * agents)
        shape = self.factory.observation_space.shape
        observations = self._home.obs[self.factory.parts[0].name][here].reshape(agents, *shape)
        buf = {
            "observations": observations,
            "rewards": self._reward[here],
            **{name: values[here] for name, values in self._flags.items()},
            "actions": self._actions[here],
            "teacher_actions": np.zeros_like(self._actions[here]),
        }
        buf["masks"][:] = True
        try:
            return PlacedEnv(self.factory.creator, (), {}, buf, index, self.factory.shape)
        except BaseException as error:
            self._fail(i, error, "could not be made:")

    def _fail(self, i: int, error: BaseException, what: str = "raised") -> NoReturn:
        """Raises EnvError for an error in a call, with the environment's index. The user's Ctrl-C stays what it is."""
        if is_interrupt(error):
            raise error
        index = self.first_env + i
        if isinstance(error, FieldError):
            raise EnvError(f"environment {index} gave a wrong value: {error}", index) from None
        raise EnvError(f"environment {index} {what} {described(error)}", index) from error

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        """Resets each environment with its own seed; `stagger` has no effect here."""
        self.lives.begin()
        for i, env in enumerate(self.envs):
            try:
                infos = env.reset(env_seed(seed, self.first_env + i))
            except BaseException as error:
                self._fail(i, error)
            self._take(i, infos)
        self._reward[:] = 0.0
        self._flags["terminals"][:] = self._flags["truncations"][:] = False
        self._settle()

    def step(self) -> None:
        agents, moved = self.spec.agents_per_env, self.rows is not self._home
        if self._decoder is not None:
            self._actions[...] = self._decoder.decode(self.rows.action).reshape(self._actions.shape)
        elif moved:
            self._home.action[:] = self.rows.action
        clock = perf_counter
        for i, env in enumerate(self.envs):
            actions = self._actions[i * agents : (i + 1) * agents]
            start = clock() if self._seconds is not None else 0.0
            try:
                infos = env.step(actions)
            except BaseException as error:
                self._fail(i, error)
            if self._seconds is not None:
                self._seconds.append(clock() - start)
            if env.done or env.emulated:
                self._final[i * agents : (i + 1) * agents] = True
            if infos:
                self._take(i, infos)
        self._settle()

    def _settle(self) -> None:
        """Makes rows of what the environments have written."""
        rows, last = self.rows, self._final
        rows.reward[:] = self._reward
        rows.terminal[:], rows.truncation[:] = self._flags["terminals"], self._flags["truncations"]
        rows.mask[:] = self._flags["masks"]
        if last.any():
            rows.mask[last & (rows.terminal | rows.truncation)] = False
            last[:] = False
        if rows is not self._home:
            for name, values in self._home.obs.items():
                rows.obs[name][...] = values
            self.lives.bind(rows)
        ended = self.lives.settle()
        if ended is not None:
            self.lives.forget(ended)

    def _take(self, i: int, infos: list[Any]) -> None:
        self.infos.add(infos)
        self._last[i] = infos

    def native_job(self) -> None:
        return None

    def notes(self) -> dict[str, str]:
        return dict(self.lives.notes)

    def info_sums(self) -> dict[str, tuple[float, int]]:
        self._last.clear()
        return self.infos.sums()

    def last_info(self) -> dict[int, dict[str, Array]]:
        """Returns the numbers of each environment's last infos since the last call, the same for all its agents."""
        found, self._last = self._last, {}
        return {i: self._each(infos) for i, infos in found.items()}

    def _each(self, infos: list[Any]) -> dict[str, Array]:
        sums = InfoSums()
        sums.add(infos)
        means = {name: total / count for name, (total, count) in sums.sums().items()}
        return {name: np.full(self.spec.agents_per_env, mean) for name, mean in means.items()}

    def time_steps(self, seconds: list[float]) -> None:
        """From now on, appends the seconds of each call of an environment's own `step` to `seconds`."""
        self._seconds = seconds

    def state_dict(self) -> dict[str, Any]:
        raise UserError(
            f"{self.spec.name}: its state cannot be saved, for a PufferEnv has no state_dict; a resumed run starts new "
            "episodes"
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state_dict()

    def close(self) -> None:
        """Closes all environments. Raises EnvError if one raises, after all were closed."""
        with ExitStack() as stack:
            for i, env in enumerate(self.envs):
                stack.callback(close_env, env, self.first_env + i)


def _counts_from_0(spec: EnvSpec) -> bool:
    """Whether rows of actions are the environment's actions."""
    return spec.action.kind == "discrete" and not any(spec.action.start)
