"""Keeps the old import paths of public names working, and logs the new path once for each name.

    from metta_fast.errors import UserError     # works; logs: metta_fast.errors.UserError is now metta_fast.UserError

`import metta_fast` installs it: one finder behind all others, which imports nothing by itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

OLD: Mapping[str, Mapping[str, str]] = {
    "metta_fast.errors": {"UserError": "metta_fast.UserError"},
    "metta_fast.spec": {
        "Array": "metta_fast.contracts.env.Array",
        "ActionSpec": "metta_fast.ActionSpec",
        "EnvBatch": "metta_fast.EnvBatch",
        "EnvError": "metta_fast.EnvError",
        "EnvFactory": "metta_fast.EnvFactory",
        "EnvSpec": "metta_fast.EnvSpec",
        "Leaf": "metta_fast.Leaf",
        "Rows": "metta_fast.Rows",
    },
    "metta_fast.ppo": {},
    "metta_fast.ppo.hooks": {
        "Context": "metta_fast.Context",
        "Hooks": "metta_fast.Hooks",
        "Sample": "metta_fast.hooks.Sample",
        "GradientHook": "metta_fast.hooks.GradientHook",
    },
    "metta_fast.replay": {},
    "metta_fast.replay.frames": {"FrameRecorder": "metta_fast.FrameRecorder"},
    "metta_fast.replay.recording": {"Recording": "metta_fast.Recording"},
}
"""Old modules, and the new path of each public name that they had. A module without names is a former package."""


class _OldModule(ModuleType):
    """Finds each public name in its new place when it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        new = OLD[self.__name__].get(name)
        if new is None:
            known = ", ".join(OLD[self.__name__].values())
            raise AttributeError(
                f"module {self.__name__!r} has moved and has no attribute {name!r}"
                + (f"; the names it had are now {known}" if known else "")
            )
        value = pkgutil.resolve_name(new)
        import logging  # not when the package is imported: it is rarely needed

        message = "%s.%s is now %s; the old path still works"
        logging.getLogger("metta_fast").warning(message, self.__name__, name, new)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules of OLD."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in OLD:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=not OLD[name])

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _OldModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """The module is empty: its names are found on demand."""


def install() -> None:
    """Adds the finder to `sys.meta_path`, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
