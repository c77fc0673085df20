"""Reads and describes domain randomisation: how robots differ from their model (randomize.h draws the numbers).

    env=ant env.params.randomize.mass=[0.8,1.2] env.params.randomize.push=0.5

Each episode draws anew within the ranges; a range of one value, mass=1.2 or mass=[1.2,1.2], is a fixed change.
Place in the flow: env.py reads env.params.randomize by it; the batches on the CPU and on the GPU get its Record.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np

from metta_fast.config.keys import did_you_mean, shown
from metta_fast.contracts.errors import UserError

KEY = "env.params.randomize"
LOOKS = ("color", "light", "light_turn", "camera", "camera_turn")
"""Keys by which pictures differ, and nothing else; in the order of look.h's kinds."""
MOST_TURN = 1.5
"""Radians."""
MOST_LATENCY = 64
"""Steps; each costs an action's memory for every environment."""
MOST_FACTOR = 100.0
PUSH_EVERY = 200.0
"""Default of push_every: a few pushes in an episode of 1000 steps."""


class Model(Protocol):
    """What is asked of a robot's model (RobotModel)."""

    @property
    def nlight(self) -> int: ...
    def push_axes(self) -> Sequence[tuple[int, float, float]]: ...
    def odd_actuator(self) -> str | None: ...


class Record(ctypes.Structure):
    """mf_random of randomize.h, field for field."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in ("masses", "frictions", "strengths")),
        ("latency", ctypes.c_int32 * 2),
        *((name, ctypes.c_float * 2) for name in ("mass", "link_mass", "friction", "strength")),
        *((name, ctypes.c_float) for name in ("noise", "push", "push_chance")),
        ("push_count", ctypes.c_int32),
        ("push_dof", ctypes.c_int32 * 3),
        ("push_axis", ctypes.c_float * 6),
        ("looks", ctypes.c_int32),
        *((name, ctypes.c_float * 2) for name in ("color", "light")),
        *((name, ctypes.c_float) for name in ("light_turn", "camera", "camera_turn")),
    ]


Range = tuple[float, float]


@dataclass(frozen=True)
class Randomize:
    """Holds the ranges; None: not randomised."""

    mass: Range | None = None
    """Factor of the whole robot's masses and inertias."""
    link_mass: Range | None = None
    """Factor of each body's own mass and inertia, drawn for each body."""
    friction: Range | None = None
    """Factor of the sliding friction of every contact."""
    strength: Range | None = None
    """Factor of each actuator's force and of its limits, drawn for each actuator."""
    latency: tuple[int, int] | None = None
    """Steps by which actions take effect late; before the first one, actions are 0."""
    noise: float | None = None
    """Standard deviation of noise on every observed number, in its own unit (rad, rad/s, m, m/s, …)."""
    push: float | None = None
    """Greatest change of the root's horizontal velocity by a push, in m/s."""
    push_every: float | None = None
    """Mean number of steps between pushes."""
    color: Range | None = None
    """Factor of red, green and blue of each geom and material, each drawn by itself."""
    light: Range | None = None
    """Factor of each light's brightness."""
    light_turn: float | None = None
    """Greatest angle by which each light's direction is turned, in rad."""
    camera: float | None = None
    """Greatest distance by which each camera is moved along each axis, in m."""
    camera_turn: float | None = None
    """Greatest angle by which each camera is turned, in rad."""

    def given(self) -> dict[str, Any]:
        """Returns the keys that were given, as they can be given again."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value is not None
        }

    @property
    def changes_model(self) -> bool:
        """Returns whether environments need models of their own."""
        return any((self.mass, self.link_mass, self.friction, self.strength))

    def of_pictures(self) -> list[str]:
        """Returns the keys that were given and change pictures only, as they were typed."""
        return [f"{KEY}.{name}={shown(value)}" for name, value in self.given().items() if name in LOOKS]

    def of_colours(self) -> list[str]:
        """Returns those that change no depth."""
        return [text for text in self.of_pictures() if ".camera" not in text]

    def words(self) -> list[str]:
        """Returns what is randomised, a line for each key."""
        lines = {
            "mass": "masses and inertias of the whole robot × {}",
            "link_mass": "mass and inertia of each body, by itself, × {}",
            "friction": "sliding friction of every contact × {}",
            "strength": "force of each actuator, by itself, × {}",
            "latency": "actions take effect {} steps late",
            "noise": "normal noise with a standard deviation of {} on every observed number, in its own unit",
            "push": "pushes of up to {} m/s in a horizontal direction, one in {} steps on average",
            "color": "red, green and blue of every geom and material, each by itself, × {}",
            "light": "brightness of each light × {}",
            "light_turn": "each light turned by up to {} rad",
            "camera": "each camera moved by up to {} m along each axis",
            "camera_turn": "each camera turned by up to {} rad",
        }
        found = []
        for name, text in lines.items():
            value = getattr(self, name)
            if value is not None:
                found.append(f"{KEY}.{name}: {text.format(_range(value), f'{self._push_every:g}')}")
        return found

    @property
    def _push_every(self) -> float:
        return self.push_every or PUSH_EVERY

    def record(self, model: Model) -> Record | None:
        """Returns the numbers for randomize.h with this model; None: nothing is randomised.

        Raises:
            UserError: the model cannot be randomised so.
        """
        if not self.given():
            return None
        found = Record(
            masses=bool(self.mass or self.link_mass),
            frictions=bool(self.friction),
            strengths=bool(self.strength),
            latency=(ctypes.c_int32 * 2)(*(self.latency or (0, 0))),
            noise=self.noise or 0,
            push=self.push or 0,
            push_chance=1 / self._push_every,
            looks=sum(1 << i for i, name in enumerate(LOOKS) if getattr(self, name) is not None),
            light_turn=self.light_turn or 0,
            camera=self.camera or 0,
            camera_turn=self.camera_turn or 0,
        )
        for name in ("mass", "link_mass", "friction", "strength", "color", "light"):
            setattr(found, name, (ctypes.c_float * 2)(*(getattr(self, name) or (1, 1))))
        if self.strength and (odd := model.odd_actuator()) is not None:
            raise UserError(
                f"{KEY}.strength={shown(list(self.strength))}: the actuator {odd} has a gain or bias whose force "
                "cannot be scaled; expected fixed, affine or muscle; leave strength out"
            )
        for name in ("light", "light_turn"):
            if getattr(self, name) is not None and not model.nlight:
                raise UserError(f"{KEY}.{name}: this robot's model has no light; leave {name} out")
        if self.push:
            axes = model.push_axes()
            if not axes:
                raise UserError(
                    f"{KEY}.push={self.push:g}: this robot's root cannot move: its first body has neither a free joint "
                    "nor a horizontal slide; leave push out"
                )
            found.push_count = len(axes)
            found.push_dof = (ctypes.c_int32 * 3)(*(dof for dof, _, _ in axes))
            found.push_axis = (ctypes.c_float * 6)(*(part for _, x, y in axes for part in (x, y)))
        return found


def read_randomize(given: Any) -> Randomize:
    """Returns what env.params.randomize says; None or {}: nothing.

    Raises:
        UserError: an unknown key, or a value that is no such range.
    """
    if given is None:
        return Randomize()
    if not isinstance(given, Mapping):
        raise UserError(
            f"{KEY}={shown(given)}: expected keys, as {KEY}.mass=[0.8,1.2]; there are {', '.join(_names())}"
        )
    for name in given:
        if name not in _names():
            raise UserError(
                f"{KEY}.{name} is not known; {did_you_mean(str(name), _names())}there are {', '.join(_names())}"
            )
    values: dict[str, Any] = {name: _read(name, value) for name, value in given.items() if value is not None}
    if "push_every" in values and "push" not in values:
        raise UserError(
            f"{KEY}.push_every={shown(given['push_every'])} has no effect without {KEY}.push: give the greatest speed, "
            f"{KEY}.push=0.5, or leave it out"
        )
    return Randomize(**values)


def _names() -> tuple[str, ...]:
    return tuple(field.name for field in fields(Randomize))


def _read(name: str, value: Any) -> Any:
    """Returns the value of one key."""
    if name in _UNITS:
        least, most, what = _UNITS[name]
        if _is_number(value) and least <= value <= most:
            return float(value)
        raise UserError(f"{KEY}.{name}={shown(value)}: expected {what}")
    ends = value if isinstance(value, (list, tuple)) else [value, value]
    good = len(ends) == 2 and all(map(_is_number, ends)) and ends[0] <= ends[1]
    if name == "latency":
        if good and ends[0] >= 0 and ends[1] <= MOST_LATENCY and all(int(end) == end for end in ends):
            return int(ends[0]), int(ends[1])
        raise UserError(
            f"{KEY}.latency={shown(value)}: expected whole steps [least, greatest], 0 … {MOST_LATENCY}, as [0,2]"
        )
    least_factor = 0.01 if name in ("mass", "link_mass") else 0.0
    if good and least_factor <= ends[0] and ends[1] <= MOST_FACTOR:
        return float(ends[0]), float(ends[1])
    raise UserError(
        f"{KEY}.{name}={shown(value)}: expected factors [least, greatest], {least_factor:g} … {MOST_FACTOR:g}, as "
        "[0.8,1.2]"
    )


_UNITS = {
    "noise": (0.0, 1e6, "the standard deviation of the noise, a number from 0 on"),
    "push": (0.0, 1e6, "the greatest speed of a push in m/s, a number from 0 on"),
    "push_every": (1.0, 1e6, "a number of steps from 1 on"),
    "light_turn": (0.0, MOST_TURN, f"the greatest angle in rad, 0 … {MOST_TURN:g}"),
    "camera": (0.0, 1e3, "the greatest distance in metres along each axis, a number from 0 on"),
    "camera_turn": (0.0, MOST_TURN, f"the greatest angle in rad, 0 … {MOST_TURN:g}"),
}
"""Key of one number → least, greatest, what it is."""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and math.isfinite(value)


def _range(value: Any) -> str:
    if isinstance(value, tuple):
        low, high = value
        return f"{low:g}" if low == high else f"{low:g} … {high:g}"
    return f"{value:g}"
