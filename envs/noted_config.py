"""Finds keys of env.* that a user's function does not read, so that a typed one is not ignored in silence.

    noted, unread = note(config)
    factory = make(noted)                      # the user's function
    del noted
    unread()                                   # {"env.max_steps", "env.params.goal"}: certainly without effect

A key counts as unread only if nothing has kept the configuration: an environment that holds it may read the key later.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from metta_fast.config.keys import EnvConfig

NOTED = ("max_steps", "limit_is_terminal")
"""Keys whose only effect on an environment that is not ours is what its function makes of them."""
OF_FACTORY = ("drop", "leaf_kinds", "pad")
"""Likewise, where the function returns a factory of its own."""
FIELDS = frozenset(field.name for field in dataclasses.fields(EnvConfig))


def note(config: EnvConfig) -> tuple[EnvConfig, Callable[..., frozenset[str]]]:
    """Returns a copy of the configuration to give away, and a function that names the keys which were not read.

    The function looks at NOTED, or the names that it is given, and at the parameters.
    """
    read: set[str] = set()
    params = _Params(config.params, read)
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    noted = _Config(**values | {"params": params})
    object.__setattr__(noted, "_read", read)
    whole, part, names = weakref.ref(noted), weakref.ref(params), list(config.params)
    del params

    def unread(noted: Sequence[str] = NOTED) -> frozenset[str]:
        if whole() is not None:
            return frozenset()
        found = {f"env.{name}" for name in noted if name not in read}
        if part() is None:
            found |= {f"env.params.{name}" for name in names if f"params.{name}" not in read}
        return frozenset(found)

    return noted, unread


class _Config(EnvConfig):
    """Notes which of its keys are read."""

    def __getattribute__(self, name: str) -> Any:
        if name in FIELDS or name == "__dict__":
            read = object.__getattribute__(self, "__dict__").get("_read")
            if read is not None:
                read.update(FIELDS if name == "__dict__" else (name,))
        return object.__getattribute__(self, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        _ = self.__dict__  # a copy has every key
        return super().__reduce_ex__(protocol)


class _Params(dict[str, Any]):
    """Notes which of its keys are read; all of them where it is read as a whole."""

    def __init__(self, values: Any = (), read: set[str] | None = None) -> None:
        super().__init__(values)
        self._read = set() if read is None else read

    def _all(self) -> _Params:
        self._read.update(f"params.{name}" for name in dict.keys(self))
        return self

    def __getitem__(self, key: str) -> Any:
        self._read.add(f"params.{key}")
        return dict.__getitem__(self, key)

    def __contains__(self, key: object) -> bool:
        self._read.add(f"params.{key}")
        return dict.__contains__(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add(f"params.{key}")
        return dict.get(self, key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self._read.add(f"params.{key}")
        return dict.pop(self, key, *default)

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self._all())

    def __or__(self, other: Any) -> Any:
        return dict(self.items()) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self.items())

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._all(), other)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return dict, (dict(self.items()),)

    def keys(self) -> Any:
        return dict.keys(self._all())

    def values(self) -> Any:
        return dict.values(self._all())

    def items(self) -> Any:
        return dict.items(self._all())

    def copy(self) -> dict[str, Any]:
        return dict(self.items())
