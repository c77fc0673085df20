"""Steps one Python environment and writes the row of its agent. agents/ has the slots for several agents.

Place in the flow: PythonBatch (python_batch.py) has one slot per environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy import ndarray

from metta_fast.config.extension import described
from metta_fast.contracts.env import Array, EnvError, EnvSpec, Rows
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.actions.masks import MaskSource, method_of, refuse, unexpected
from metta_fast.envs.direct_step import direct_step
from metta_fast.envs.python_checks import make_env, reset_result, step_result
from metta_fast.envs.spaces import FieldError, Part

DISABLED, NEXT_STEP, SAME_STEP = "Disabled", "NextStep", "SameStep"
"""Gymnasium's AutoresetMode."""


ONE = np.ones(1, np.bool_)


class Made(Protocol):
    """Declares the attributes of PythonEnvFactory (python_env.py) that a slot reads."""

    spec: EnvSpec
    parts: tuple[Part, ...]
    mask: MaskSource | None
    info_may_have_mask: bool
    action_space: Any
    autoreset: str
    same_step: bool
    kind: Any
    """What it found out about the environment (agents/kinds.py: Kind)."""
    make_env: Callable[[int], Any]


class Slot:
    """Holds one environment and its rows."""

    rows: Rows
    views: list[Array]
    view: Array
    """Direct path for an observation that is one array and is copied into the row unchanged; otherwise `dtype` is
    None."""
    shape: tuple[int, ...] = ()
    dtype: np.dtype | None = None

    def __init__(self, factory: Made, index: int) -> None:
        self.factory = factory
        self.index = index
        self.agents: tuple[int, ...] = ()
        """Leading axes of the environment's values: () for one agent, (n,) for n."""
        self.ended = False
        """True: the next call starts a new episode."""
        self.held: Any = None
        """same-step: the new episode's first observation."""
        self.note: Callable[[Any, Array], None] = _forget
        """Takes the info of an episode's last step, and [n] whose episode ends: statistics that nobody declared."""
        self.env = make_env(factory.make_env, index)
        self.call = direct_step(self.env)
        self.mask = factory.mask
        self.found_mask: Callable[[], None] | None = refuse if factory.info_may_have_mask else None
        """Called for a mask in info that is not used; None: info is not looked at."""
        self.method = method_of(self.env) if self.mask is not None and self.mask.kind == "method" else None

    def bind(self, rows: Rows) -> None:
        self.rows = rows
        self.mask_view = rows.action_mask.reshape((*self.agents, -1)) if self.mask is not None else None
        self.views = [part.view(rows.obs[part.name], self.agents) for part in self.factory.parts]
        part = self.factory.parts[0]
        if len(self.views) == 1 and not part.path and not part.nvec:
            self.view, self.shape, self.dtype = self.views[0], self.views[0].shape, part.dtype

    def guard(self, call: Callable[..., None], *arguments: Any) -> None:
        """Calls a function; an error names this environment."""
        try:
            call(*arguments)
        except BaseException as error:
            self.fail(error)

    def guarded(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a method of the environment; an error names the environment and the method."""
        try:
            return call(*arguments)
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise EnvError(
                f"environment {self.index}: {name}() raised {described(error)}", self.index
            ) from error

    def fail(self, error: BaseException) -> NoReturn:
        """Raises EnvError for an error in a call, with this environment's index. The user's Ctrl-C stays what it is."""
        if is_interrupt(error):
            raise error
        if isinstance(error, FieldError):
            raise EnvError(f"environment {self.index} gave a wrong value: {error}", self.index) from None
        raise EnvError(
            f"environment {self.index} raised {described(error)}{self._hint()}", self.index
        ) from error

    def _hint(self) -> str:
        return ""

    def _fresh(self, seed: int | None) -> Any:
        """Returns the first observation of a new episode, and writes its action mask."""
        result = self.env.reset() if seed is None else self.env.reset(seed=seed)
        obs = reset_result(result)
        if self.mask is not None:
            self._write_mask(obs, result[1])
        elif self.found_mask is not None and unexpected(result[1]):
            self.found_mask()
        return obs

    def _write_mask(self, obs: Any, info: Any, live: Array | None = None) -> None:
        """Writes the action mask. live: [n] bool: the agents that act next; None: all. Others' are not
        read."""
        source, view = self.mask, self.mask_view
        assert source is not None
        assert view is not None
        if live is not None and not live.any():
            view[...] = True
            return
        source.write(source.find(obs, info, self.method), view, self.agents)

    def _write(self, obs: Any) -> None:
        for part, view in zip(self.factory.parts, self.views):
            part.write(obs, view, self.agents)

    def _stats(self, info: Mapping[str, Any], which: Any) -> None:
        """Writes the statistics of the agents `which`, whose episode ends."""
        for column, name in enumerate(self.factory.spec.stats):
            value: Any = info
            for key in name.split("/"):
                if not isinstance(value, Mapping) or key not in value:
                    raise FieldError(
                        f"info of an episode's last step has no {name!r}, which the factory lists in stats"
                    )
                value = value[key]
            self.rows.stats[which, column] = np.broadcast_to(value, (self.factory.spec.agents_per_env,))[
                which
            ]


class OneAgent(Slot):
    """Steps an environment with Gymnasium's API. `step` and `restart` write the row and return the reward."""

    def reset(self, seed: int | None) -> None:
        """Writes a new episode's first row."""
        rows = self.rows
        self._write(self._fresh(seed))
        rows.reward[:] = 0.0
        rows.terminal[:] = rows.truncation[:] = False
        rows.mask[:] = rows.reset[:] = True
        self.ended = False

    def step(self, action: Any) -> float:
        """Steps and returns the reward. Writes flags only at an episode's end: the batch has cleared them."""
        result = self.call(action)
        if type(result) is not tuple or len(result) != 5:
            result = step_result(result)
        obs, reward, terminal, truncation, info = result
        if type(terminal) is not bool or type(truncation) is not bool:
            terminal, truncation = _flag("terminated", terminal), _flag("truncated", truncation)
        if terminal or truncation:
            obs = self._end(obs, terminal, truncation, info)
        elif self.mask is not None:
            self._write_mask(obs, info)
        elif info and self.found_mask is not None and unexpected(info):
            self.found_mask()
        if type(obs) is ndarray and obs.dtype is self.dtype and obs.shape == self.shape:
            self.view[...] = obs
        else:
            self._write(obs)
        return reward if type(reward) is float else _number("reward", reward)

    def _end(self, obs: Any, terminal: bool, truncation: bool, info: Mapping[str, Any]) -> Any:
        """Writes the flags and statistics of an episode's last step. Returns its row's observation."""
        factory, rows = self.factory, self.rows
        masked = self.ended = factory.spec.has_final_obs
        if self.mask is not None:
            if factory.autoreset == SAME_STEP:  # it is the new episode's; a masked row's is not read
                self._write_mask(obs, info)
            else:
                rows.action_mask[...] = True
        if factory.autoreset == SAME_STEP:
            if masked:
                if "final_obs" not in info:
                    raise FieldError(
                        "an episode ended and info has no 'final_obs', although autoreset_mode is same-step; "
                        "give it, or make the factory with has_final_obs=False"
                    )
                self.held, obs = obs, info["final_obs"]
            info = info.get("final_info", info)
        rows.terminal[0], rows.truncation[0] = terminal, truncation
        if masked:
            rows.mask[0] = False
        else:
            rows.reset[0] = True
        if factory.spec.stats:
            self._stats(info, [0])
        self.note(info, ONE)
        return obs

    def restart(self, action: Any) -> float:
        """Writes the first row of the next episode and returns its reward, 0."""
        factory = self.factory
        if factory.autoreset == SAME_STEP:
            obs, self.held = self.held, None
        elif factory.autoreset == NEXT_STEP:
            obs, *_, info = step_result(self.call(action))
            if self.mask is not None:
                self._write_mask(obs, info)
        else:
            obs = self._fresh(None)
        self._write(obs)
        self.rows.reset[0] = True
        self.ended = False
        return 0.0


def _forget(info: Any, which: Array) -> None:
    """Takes no statistics."""


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise FieldError(f"{name} is {value!r} ({type(value).__name__}), expected a bool")
    return bool(value)


def _number(name: str, value: Any) -> float:
    if isinstance(value, (np.floating, int)):
        return float(value)
    if np.ndim(value) or np.asarray(value).dtype.kind not in "biuf":
        raise FieldError(f"{name} is {value!r}, expected a number")
    return float(value)
