"""Steps PufferEnvs behind our vector contract with PufferLib's own buffers: nothing is interpreted.

    rows.obs["observations"], rows.reward, rows.terminal, rows.truncation, rows.mask     written by the environments
    rows.obs["actions"], rows.obs["teacher_actions"]                                     PufferLib's actions
    rows.obs["infos"]                                                                    a box of infos (info_box.py)
    rows.obs["notify"]                                                                   1: call notify before the step

Place in the flow: vector.py makes a vector of them. For training, envs/puffer has a batch that tells masked rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from metta_fast.compat.pufferlib import info_box
from metta_fast.config.extension import described
from metta_fast.contracts import progress
from metta_fast.contracts.env import ActionSpec, EnvError, EnvSpec, Leaf, Rows
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.puffer.placed import PlacedEnv, Shape, action_dtype
from metta_fast.envs.python_checks import close_env
from metta_fast.envs.spaces import FieldError

NO_SEED = (1 << 64) - 1
"""Stands for None in `reset`."""


@dataclass(frozen=True)
class Creators:
    """Says how each environment is made: creator(*args, buf=…, seed=seed + i, **kwargs)."""

    creators: Sequence[Callable[..., Any]]
    args: Sequence[Sequence[Any]]
    kwargs: Sequence[Mapping[str, Any]]
    seed: int


class RawFactory:
    """Makes batches of PufferEnvs (contracts/env.py: EnvFactory).

    Args:
        driver: a PufferEnv of the same spaces.
        folder: where infos go that are too large for their box; None: infos stay in this process.
    """

    def __init__(self, creators: Creators, driver: Any, folder: str | None) -> None:
        self.creators, self.folder = creators, folder
        self.shape = shape = Shape.of(driver)
        self.agents = shape.agents
        action = tuple(shape.action_space.shape or ()), action_dtype(shape.action_space).name
        observation = shape.observation_space
        box = -(-info_box.SIZE // self.agents // info_box.HEAD) * info_box.HEAD if folder else 0
        obs = {
            "actions": Leaf(*action),
            "infos": Leaf((box,), "uint8"),
            "notify": Leaf((), "uint8"),
            "observations": Leaf(observation.shape, np.dtype(observation.dtype).name),
            "teacher_actions": Leaf(*action),
        }
        self.spec = EnvSpec(
            "pufferlib", self.agents, obs, ActionSpec("discrete", nvec=(1,)), has_final_obs=False
        )

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> RawBatch:
        return RawBatch(self, first_env, num_envs)


class RawBatch:
    """Steps PufferEnvs one after another. They are made when their rows are there."""

    def __init__(self, factory: RawFactory, first_env: int, num_envs: int) -> None:
        self.factory, self.first_env, self.num_envs = factory, first_env, num_envs
        self.envs: list[PlacedEnv] = []
        self.infos: list[Any] = []
        """What the last call's environments told, if it stays in this process."""

    def bind(self, rows: Rows) -> None:
        agents = self.factory.agents
        parts = [rows.slice(i * agents, (i + 1) * agents) for i in range(self.num_envs)]
        self._actions = [part.obs["actions"] for part in parts]
        self._boxes = [part.obs["infos"].reshape(-1) for part in parts]
        self._notify, self._told = rows.obs["notify"], [False] * self.num_envs
        try:
            for i, part in enumerate(parts):
                self.envs.append(self._make(i, part))
                progress.made()
        except BaseException:
            with suppress(Exception):
                self.close()
            raise

    def _make(self, i: int, rows: Rows) -> PlacedEnv:
        how, index = self.factory.creators, self.first_env + i
        rows.mask[:] = True
        buf = {
            "observations": rows.obs["observations"],
            "rewards": rows.reward,
            "terminals": rows.terminal,
            "truncations": rows.truncation,
            "masks": rows.mask,
            "actions": rows.obs["actions"],
            "teacher_actions": rows.obs["teacher_actions"],
        }
        seed, like = how.seed + index, self.factory.shape
        try:
            return PlacedEnv(how.creators[index], how.args[index], how.kwargs[index], buf, seed, like)
        except BaseException as error:
            self._fail(i, error, "could not be made:")

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        self.infos = []
        for i, env in enumerate(self.envs):
            try:
                self._tell(i, env.reset(None if seed == NO_SEED else seed + self.first_env + i))
            except BaseException as error:
                self._fail(i, error)

    def step(self) -> None:
        self.infos = []
        if self._notify.any():
            self._notify_each()
        i = 0
        try:
            for i, env in enumerate(self.envs):
                infos = env.step(self._actions[i])
                if infos or self._told[i]:
                    self._tell(i, infos)
        except BaseException as error:
            self._fail(i, error)

    def _notify_each(self) -> None:
        for i, env in enumerate(self.envs):
            if self._notify[i * self.factory.agents]:
                try:
                    env.env.notify()
                except BaseException as error:
                    self._fail(i, error)
        self._notify[:] = 0

    def _tell(self, i: int, infos: list[Any]) -> None:
        if self.factory.folder is None:
            self.infos += infos
        else:
            info_box.put(self._boxes[i], infos, self.factory.folder)
            self._told[i] = bool(infos)

    def _fail(self, i: int, error: BaseException, what: str = "raised") -> NoReturn:
        """Raises EnvError for an error in a call, with the environment's index. The user's Ctrl-C stays what it is."""
        if is_interrupt(error):
            raise error
        index = self.first_env + i
        told = str(error) if isinstance(error, FieldError) else described(error)
        raise EnvError(f"environment {index} {what} {told}", index) from error

    def native_job(self) -> None:
        return None

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Closes all environments, also if one raises."""
        with ExitStack() as stack:
            for i, env in enumerate(self.envs):
                stack.callback(close_env, env, self.first_env + i)
