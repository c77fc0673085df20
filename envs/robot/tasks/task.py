"""Describes a robot task to Python: names, options and their defaults. The rules are in the header of the same name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError

Option = float | bool | tuple[float, float]


@dataclass(frozen=True)
class Task:
    """Describes a robot task. `options`, then `bodies`, `sites` and `sensors`, are the fields of its C struct
    NAME_params, in this order."""

    name: str
    """Of the header, tasks/NAME.h."""
    xml: str
    """Model file: one of Gymnasium's assets, or a path that begins with . / or ~."""
    frame_skip: int
    """Physics substeps of one step."""
    max_steps: int
    """The time limit, in steps."""
    options: Mapping[str, Option]
    """Name → default, as Gymnasium's constructor has them: a number, a switch or a range."""
    info: tuple[str, ...]
    """Names of the numbers that NAME_after writes; an array's elements are NAME[0], NAME[1]."""
    obs_size: Callable[[Any, Mapping[str, Any]], int]
    """(mjModel, options) → numbers observed."""
    bodies: tuple[str, ...] = ()
    """Bodies of the model that the rules look at."""
    sites: tuple[str, ...] = ()
    """Sites of the model that the rules look at."""
    sensors: tuple[str, ...] = ()
    """Sensors of the model that the rules look at: their field is the first number's place in sensordata."""
    body_options: tuple[str, ...] = ()
    """Options whose value is a body of the model: its number or its name."""
    gymnasium_id: str = ""
    """The environment of Gymnasium's that it equals; "": none."""

    def values(self, given: Mapping[str, Any]) -> dict[str, Option]:
        """Returns all options, `given` over the defaults.

        Raises:
            UserError: an unknown option, or a value of another kind than its default.
        """
        return {**self.options, **{key: self._checked(key, value) for key, value in given.items()}}

    def record(self, given: Mapping[str, Any], number: Callable[[str, str], int]) -> Array:
        """Returns NAME_params as a NumPy record, shape (). `number`: of a body or site in the model, or of a sensor's
        place in sensordata, by its kind (body, site, sensor) and name."""
        named = {
            k: float(number("body", v))
            for k, v in given.items()
            if k in self.body_options and isinstance(v, str)
        }
        parts = {"body": self.bodies, "site": self.sites, "sensor": self.sensors}
        found = {name: int(number(kind, name)) for kind, names in parts.items() for name in names}
        fields = {**self.values({**given, **named}), **found}
        record = np.zeros((), np.dtype([(key, *_field(value)) for key, value in fields.items()], align=True))
        for key, value in fields.items():
            record[key] = value
        return record

    def _checked(self, key: str, value: Any) -> Option:
        if key not in self.options:
            raise UserError(
                f"{self.name}: unknown option {key!r}; {did_you_mean(key, self.options)}"
                f"there are {', '.join(self.options)}"
            )
        default = self.options[key]
        if isinstance(default, bool):
            if isinstance(value, (bool, np.bool_)):
                return bool(value)
            expected = "true or false"
        elif isinstance(default, tuple):
            if isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_is_number, value)):
                return float(value[0]), float(value[1])
            expected = "a range of two numbers, as [-1, 1]"
        else:
            if _is_number(value):
                return float(value)
            expected = "a number"
        raise UserError(f"{self.name}: {key}={value!r}, expected {expected}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and value == value


def _field(value: Any) -> tuple[str, tuple[int, ...]]:
    """Returns (dtype, shape) of a field of the C struct."""
    if isinstance(value, tuple):
        return "f8", (2,)
    return ("f8" if isinstance(value, float) else "i4"), ()
