"""Finds the spaces in which all agents of an environment fit (env.pad), and where each agent's own values are in them.

    joint = joined_spaces({"prey": (observation, action), "hunter": (…)}, pad=True)
    joint.observation, joint.action        # of the rows
    joint.fits                             # None: all agents are alike; else how each agent's values fit

Observations are padded with zeros at the end of each axis, and by leaves that an agent lacks. Actions: choices and
heads that an agent lacks are illegal (of a head that it lacks, all but the first); numbers that it lacks are dropped.
Bounds of observations may differ without that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from metta_fast.contracts.env import ActionSpec, Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.actions import action_spec

Space = spaces.Space[Any]


@dataclass(frozen=True)
class Fit:
    """Says how one agent's own values fit into the joint rows."""

    observation: Space
    action: Space
    columns: Array
    """[own width] the entries of the joint action row that are the agent's."""
    legal: Array
    """[P] bool: the joint choices that the agent has."""
    places: Array
    """[own P] its choices among the joint ones."""


@dataclass(frozen=True)
class Joint:
    observation: Space
    action: Space
    fits: tuple[Fit, ...] | None = None
    """Each agent's, in order; None: all are alike."""

    @property
    def masked(self) -> bool:
        """Whether some agent lacks choices that others have."""
        return self.fits is not None and not all(fit.legal.all() for fit in self.fits)


def joined_spaces(given: Mapping[Any, tuple[Space, Space]], pad: bool) -> Joint:
    """Returns the spaces of the rows of agents that have these (observation, action) spaces.

    Raises:
        UserError: they differ and `pad` is False, or cannot be padded.
    """
    differ = _Differ(pad)
    observation = _observation({agent: pair[0] for agent, pair in given.items()}, "", differ)
    acts = {agent: pair[1] for agent, pair in given.items()}
    first = next(iter(acts.values()))
    alike = all(space == first for space in acts.values())
    if not alike:
        differ("action", acts, lambda space: space == first)
    if not differ.found:
        return Joint(observation, first)
    specs = {agent: action_spec(space) for agent, space in acts.items()}
    joint, action = (specs[next(iter(specs))], first) if alike else _action(list(specs.values()))
    return Joint(
        observation,
        action,
        tuple(_fit(given[agent][0], acts[agent], specs[agent], joint) for agent in given),
    )


class _Differ:
    """Notes that agents' spaces differ; refuses it without env.pad."""

    def __init__(self, pad: bool) -> None:
        self._pad = pad
        self.found = False

    def __call__(
        self, what: str, given: Mapping[Any, Space], like_first: Callable[[Space], bool], never: bool = False
    ) -> None:
        self.found = True
        if self._pad and not never:
            return
        first, space = next(iter(given.items()))
        other, another = next((a, s) for a, s in given.items() if not like_first(s))
        cure = (
            "env.pad=true cannot pad these: wrap the environment so that they are alike"
            if never
            else "env.pad=true (in Python: pad=True) pads the smaller ones, or wrap the environment"
        )
        raise UserError(
            f"agents of different spaces: the {what} of {first} is {short(space)}, of {other} {short(another)}; {cure}"
        )


def short(space: Space) -> str:
    """Names a space in a message, without its bounds."""
    if isinstance(space, spaces.Box):
        return f"Box {list(space.shape)} {space.dtype}"
    if isinstance(space, spaces.Dict):
        return "Dict(" + ", ".join(f"{key}: {short(part)}" for key, part in space.spaces.items()) + ")"
    return " ".join(str(space).split())


def _observation(given: Mapping[Any, Space], path: str, differ: _Differ) -> Space:
    """Returns the joint space of one part of the observations; `path` names it in messages."""
    all_ = list(given.values())
    first, what = all_[0], f"observation {path!r}" if path else "observation"
    if all(space == first for space in all_):
        return first
    if len({type(space) for space in all_}) > 1 or isinstance(first, spaces.Tuple):
        differ(what, given, lambda space: type(space) is type(first) and space == first, never=True)
    if isinstance(first, spaces.Dict):
        parts: dict[Any, Mapping[Any, Space]] = {agent: space.spaces for agent, space in given.items()}  # type: ignore[attr-defined]
        keys = list(dict.fromkeys(key for own in parts.values() for key in own))
        if any(own.keys() != set(keys) for own in parts.values()):
            differ(what, given, lambda space: space.spaces.keys() == first.spaces.keys())  # type: ignore[attr-defined]
        return spaces.Dict(
            {
                key: _observation(
                    {agent: own[key] for agent, own in parts.items() if key in own},
                    f"{path}/{key}" if path else str(key),
                    differ,
                )
                for key in keys
            }
        )
    if isinstance(first, spaces.Box):
        return _box(given, what, differ)
    if isinstance(first, spaces.Discrete):
        differ(what, given, lambda space: space == first)
        return spaces.Discrete(max(int(space.n) for space in all_))  # type: ignore[attr-defined]
    if isinstance(first, spaces.MultiBinary) and all(len(space.shape or ()) == 1 for space in all_):
        differ(what, given, lambda space: space == first)
        return spaces.MultiBinary(max(space.shape[0] for space in all_))  # type: ignore[index]
    differ(what, given, lambda space: space == first, never=True)
    raise AssertionError


def _box(given: Mapping[Any, Space], what: str, differ: _Differ) -> Space:
    all_: list[Any] = list(given.values())
    first = all_[0]
    if len({(space.dtype, len(space.shape)) for space in all_}) > 1:
        differ(
            what,
            given,
            lambda s: s.dtype == first.dtype and len(s.shape or ()) == len(first.shape),
            never=True,
        )
    shape = tuple(max(sides) for sides in zip(*(space.shape for space in all_)))
    if any(space.shape != shape for space in all_):
        differ(what, given, lambda space: space.shape == first.shape)
    low, high = np.zeros(shape, first.dtype), np.zeros(shape, first.dtype)
    if all(space.shape == shape for space in all_):
        low, high = first.low.copy(), first.high.copy()
    for space in all_:
        inside = tuple(slice(0, side) for side in space.shape)
        low[inside] = np.minimum(low[inside], space.low)
        high[inside] = np.maximum(high[inside], space.high)
    return spaces.Box(low, high, shape, first.dtype.type)


def _action(specs: list[ActionSpec]) -> tuple[ActionSpec, Space]:
    """Returns the heads and numbers that all agents have room in, and a space that has them."""
    heads, numbers = max(len(spec.nvec) for spec in specs), max(len(spec.low) for spec in specs)
    nvec = tuple(max(spec.nvec[i] for spec in specs if i < len(spec.nvec)) for i in range(heads))
    low = tuple(min(spec.low[i] for spec in specs if i < len(spec.low)) for i in range(numbers))
    high = tuple(max(spec.high[i] for spec in specs if i < len(spec.high)) for i in range(numbers))
    choice: Space = spaces.Discrete(nvec[0]) if heads == 1 else spaces.MultiDiscrete(list(nvec))
    box = spaces.Box(np.array(low, np.float32), np.array(high, np.float32), dtype=np.float32)
    space: Space = box if not heads else choice if not numbers else spaces.Tuple([choice, box])
    return action_spec(space), space


def _fit(observation: Space, action: Space, own: ActionSpec, joint: ActionSpec) -> Fit:
    heads = len(joint.nvec)
    columns = [*range(len(own.nvec)), *(heads + i for i in range(len(own.low)))]
    starts = np.cumsum((0, *joint.nvec))
    legal = np.zeros(sum(joint.nvec), np.bool_)
    places = [int(starts[head]) + i for head, n in enumerate(own.nvec) for i in range(n)]
    legal[places] = True
    legal[starts[len(own.nvec) : heads]] = True  # heads that it lacks: their first choice
    return Fit(observation, action, np.array(columns, np.intp), legal, np.array(places, np.intp))
