"""Makes one PufferEnv whose buffers are given memory, and steps it as PufferLib's vectors do.

    env = PlacedEnv(creator, args, kwargs, buf, seed)      # buf: buffers(…), views of the slab
    infos = env.reset(seed)                                # the buffers hold the first row
    infos = env.step(actions)                              # resets instead, if the environment is done

A native PufferEnv resets itself, in the step that ends an episode. An emulated one (GymnasiumPufferEnv,
PettingZooPufferEnv) is reset by the step after. Both are known by what they have, so those of the package pufferlib, of
metta_fast.compat.pufferlib and of anyone else are the same here.

An environment may have arrays of its own, since it ignores `buf` or replaces an attribute: they are copied after each
call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from metta_fast.contracts.env import Array
from metta_fast.envs.spaces import FieldError

WRITTEN = ("observations", "rewards", "terminals", "truncations", "masks")
"""Buffers that the environment writes."""
BUFFERS = (*WRITTEN, "actions", "teacher_actions")
NEEDS = (
    "single_observation_space",
    "single_action_space",
    "num_agents",
    "reset",
    "step",
    *WRITTEN[:4],
)
"""Attributes by which a PufferEnv is known."""


class Shape(NamedTuple):
    """What all PufferEnvs of a vector share."""

    agents: int
    observation_space: spaces.Box
    action_space: spaces.Space[Any]

    @classmethod
    def of(cls, env: Any) -> Shape:
        return cls(int(env.num_agents), env.single_observation_space, env.single_action_space)

    def differs(self, other: Shape) -> str:
        """Returns in what the other differs, or ""."""
        names = "num_agents", "single_observation_space", "single_action_space"
        for name, first, second in zip(names, self, other):
            if first != second:
                return f"has {name} {second}, and the first environment has {first}: all must be the same"
        return ""


class PlacedEnv:
    """Holds one PufferEnv and its buffers.

    Args:
        creator: called as creator(*args, buf=buf, seed=seed, **kwargs).
        buf: {name: array} of BUFFERS.
        like: a PufferEnv with the same spaces and number of agents.

    Raises:
        FieldError: it made something that is no PufferEnv, or another than `like`.
    """

    def __init__(
        self,
        creator: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        buf: Mapping[str, Array],
        seed: int,
        like: Shape,
    ) -> None:
        self.buf = dict(buf)
        self._written = tuple(self.buf[name] for name in WRITTEN)
        self.env = creator(*args, buf=self.buf, seed=seed, **kwargs)
        if wrong := lacks(self.env) or like.differs(Shape.of(self.env)):
            raise FieldError(wrong)
        self.emulated = is_emulated(self.env)
        self.done = False
        """Whether the next step resets the environment."""
        self.copy_out()

    def reset(self, seed: int | None) -> list[Any]:
        """Resets the environment. Returns its infos."""
        result = self.env.reset() if seed is None else self.env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise FieldError(f"reset() gave {_given(result)}, expected (observations, infos)")
        self.copy_out()
        return listed(result[1])

    def step(self, actions: Array) -> list[Any]:
        """Steps the environment, or resets it if it is done. Returns its infos."""
        if self.done:
            return self.reset(None)
        result = self.env.step(actions)
        if not isinstance(result, tuple) or len(result) != 5:
            raise FieldError(
                f"step() gave {_given(result)}, expected (observations, rewards, terminals, truncations, infos)"
            )
        self.copy_out()
        return listed(result[4])

    def copy_out(self) -> None:
        """Copies arrays that are not the buffers to the buffers, and asks whether the environment is done."""
        env, (observations, rewards, terminals, truncations, masks) = self.env, self._written
        self.done = bool(getattr(env, "done", False))
        if (
            env.observations is observations
            and env.rewards is rewards
            and env.terminals is terminals
            and env.truncations is truncations
            and getattr(env, "masks", masks) is masks
        ):
            return
        for name in WRITTEN:
            to = self.buf[name]
            given = getattr(env, name, to)
            if given is not to:
                self._copy(name, given, to)

    def _copy(self, name: str, given: Any, to: Array) -> None:
        given = np.asarray(given)
        if given.shape != to.shape or not np.can_cast(given.dtype, to.dtype, "same_kind"):
            raise FieldError(
                f"its {name} are {given.dtype} {list(given.shape)}, expected {to.dtype} {list(to.shape)}"
            )
        np.copyto(to, given, casting="same_kind")

    def close(self) -> None:
        getattr(self.env, "close", _nothing)()


def lacks(env: Any) -> str:
    """Returns why this is no PufferEnv, or ""."""
    name = env.__name__ if isinstance(env, type) else type(env).__name__
    if env is None:
        return "is None: the creator must return a PufferEnv"
    if isinstance(env, type):
        return f"is the class {name}, not a PufferEnv: the creator must call it"
    missing = [part for part in NEEDS if not hasattr(env, part)]
    if not missing:
        return _wrong_space(env, name)
    if hasattr(env, "possible_agents"):
        return f"is the PettingZoo environment {name}: wrap it, as in PettingZooPufferEnv(env=env, buf=buf)"
    if hasattr(env, "observation_space") and hasattr(env, "action_space"):
        return f"is {name}, no PufferEnv: wrap it, as in GymnasiumPufferEnv(env=env, buf=buf)"
    return f"is {name} without {', '.join(missing)}: expected a PufferEnv, whose __init__ calls super().__init__(buf)"


def _wrong_space(env: Any, name: str) -> str:
    obs, action = env.single_observation_space, env.single_action_space
    if not isinstance(obs, spaces.Box):
        return f"is {name}, whose single_observation_space is {obs}: a PufferEnv has a Box"
    if not isinstance(action, (spaces.Discrete, spaces.MultiDiscrete, spaces.Box)):
        return f"is {name}, whose single_action_space is {action}: a PufferEnv has Discrete, MultiDiscrete or Box"
    agents = env.num_agents
    if isinstance(agents, bool) or not isinstance(agents, (int, np.integer)) or agents < 1:
        return f"is {name}, whose num_agents is {agents!r}: expected a whole number of at least 1"
    return ""


def is_puffer(env: Any) -> bool:
    """Returns whether this has all that a PufferEnv has."""
    return not isinstance(env, type) and all(hasattr(env, part) for part in NEEDS)


def takes_buffers(function: Callable[..., Any]) -> bool:
    """Returns whether this names buf and seed among its arguments, as what makes a PufferEnv does."""
    try:
        return {"buf", "seed"} <= inspect.signature(function).parameters.keys()
    except (TypeError, ValueError):  # compiled: no signature to read
        return False


def is_emulated(env: Any) -> bool:
    """Returns whether this PufferEnv is another library's environment, which does not reset itself."""
    return bool(getattr(env, "emulated", False))


def action_dtype(space: spaces.Space[Any]) -> np.dtype:
    """Returns the dtype of an agent's buffer of actions."""
    return np.dtype(space.dtype) if isinstance(space, spaces.Box) else np.dtype(np.int32)


def listed(infos: Any) -> list[Any]:
    """Returns infos, a list of dicts or one dict, as a list."""
    if isinstance(infos, (list, tuple)):
        return list(infos)
    return [infos] if infos else []


def _given(result: Any) -> str:
    if isinstance(result, tuple):
        return f"tuple of {len(result)}"
    return "None" if result is None else type(result).__name__


def _nothing() -> None:
    pass
