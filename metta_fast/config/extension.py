"""Loads a user's environment, policy, encoder, algorithm or feature by its name.

    env=my_module:make           a function or class of a module, in the current folder, in PYTHONPATH or installed
    policy=my_package.net.Net    the older form, with a dot before the name
    features=my_feature          an entry point of an installed package, declared in its pyproject.toml:

        [project.entry-points."metta_fast.features"]
        my_feature = "my_package.my_module:add"

Entry points belong to a group: ENVS, POLICIES, ENCODERS, ALGORITHMS or FEATURES. No torch here.

Whether a name that comes from a run may be loaded, trust.py decides before anything here is called.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from metta_fast.config.keys import did_you_mean, find_key
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.machine.run_imports import add_named_folder, named_folder, refused

ENVS, POLICIES, ENCODERS = "metta_fast.envs", "metta_fast.policies", "metta_fast.encoders"
ALGORITHMS, FEATURES = "metta_fast.algorithms", "metta_fast.features"
_NOT_OWN = (
    "<",
    *(sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib")),
    str(Path(__file__).parents[1]),
)
"""Where code is that is not the user's."""
MOST_NAMES = 8
"""Names of a module that a message lists."""


def place_of(package: str) -> str:
    """Returns where a top-level module or package is, or would be found; "" if nowhere. Imports nothing."""
    add_named_folder()
    module = sys.modules.get(package)
    file: str | None = getattr(module, "__file__", None)
    paths = list(getattr(module, "__path__", ()))
    if module is None:
        spec = next(
            (s for finder in sys.meta_path if (s := finder.find_spec(package, None)) is not None), None
        )
        file = spec.origin if spec and spec.has_location else None
        paths = list(spec.submodule_search_locations or ()) if spec else []
    return os.path.realpath(file) if file else os.pathsep.join(map(os.path.realpath, paths))


def is_module_name(text: str) -> bool:
    """Whether `text` names a part of a module ("my_module:make", "package.module.Class"), not one of ours."""
    return ":" in text or "." in text


def load_named(text: str, key: str) -> Any:
    """Imports what "package.module:name" (or "package.module.name") names.

    Args:
        key: the configuration key that names it, for messages.

    Raises:
        UserError: malformed name, no such module, a module that cannot be imported, no such name in it, or
            the name is not callable.
    """
    entry = find_key(key)
    assert entry.names_code, f"mark {key} in the schema with names_code=True: config/trust.py decides on it"
    where = f"{key}={text}"
    if ":" not in text and key.removesuffix(".name") != entry.path.removesuffix(".name"):
        raise UserError(f"{where}: expected package.module:name, for example my_module:make")
    module_name, _, name = text.partition(":") if ":" in text else text.rpartition(".")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise UserError(
            f"{where}: expected package.module:function or package.module:Class, for example my_module:make"
        )
    module = _module(module_name, where)
    found = getattr(module, name, None)
    if found is None:
        there = _names(module)
        listed = ", ".join(there[:MOST_NAMES]) + (", …" if len(there) > MOST_NAMES else "")
        raise UserError(
            f"{where}: module {module_name} has no {name}; {did_you_mean(name, there)}"
            f"it has {listed or 'no function or class'}"
        )
    if not callable(found):
        raise UserError(
            f"{where}: {name} of module {module_name} is {type(found).__name__}, expected a function or class"
        )
    return found


def load_module(name: str, key: str, where: str) -> ModuleType:
    """Imports a module that the value of a key names.

    Args:
        where: key and value, for messages.

    Raises:
        UserError: malformed name, no such module, or one that cannot be imported.
    """
    assert find_key(key).names_code, (
        f"mark {key} in the schema with names_code=True: config/trust.py decides on it"
    )
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"{where}: {name!r} is not the name of a package; expected package:id")
    return _module(name, where)


def entry_point_names(group: str) -> list[str]:
    """Returns the names that installed packages give in this group of entry points."""
    return sorted({point.name for point in _installed(group)})


def _installed(group: str) -> list[EntryPoint]:
    """Returns the entry points of installed packages. A package's description that lies in the current folder, which
    is on sys.path for named modules only, does not make it installed."""
    return [
        point
        for point in entry_points(group=group)
        if point.dist is None or str(point.dist.locate_file("")) not in named_folder
    ]


def entry_point(group: str, name: str, key: str | None = None) -> Any:
    """Loads the entry point of this name, or returns None where no installed package has it.

    Args:
        key: the configuration key that names it, for messages (default: the last word of the group).

    Raises:
        UserError: its module cannot be imported, or lacks what the entry point names.
    """
    found: EntryPoint | None = next((p for p in _installed(group) if p.name == name), None)
    if found is None:
        return None
    try:
        return found.load()
    except BaseException as error:  # a script may call sys.exit
        if is_interrupt(error):
            raise
        raise UserError(
            f"{key or group.rpartition('.')[2]}={name}: the entry point {found.value} of group {group} cannot be "
            f"loaded: {described(error)}"
        ) from error


def keywords(
    function: Callable[..., Any], given: Mapping[str, Any], where: str, positional: int
) -> dict[str, Any]:
    """Returns `given` as keywords of a user's function or class, checked against its signature.

    Args:
        where: the group of keys, for messages: "features.my_module:add".
        positional: parameters before the keywords.

    Raises:
        UserError: a key that it does not have, or none for one that it needs.
    """
    parameters = _parameters(function, where)[positional:]
    takes = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for key in given:
        if key not in takes and not anything:
            guess = did_you_mean(key, takes)
            raise UserError(f"{where}.{key}: unknown key; {guess}it has {', '.join(takes) or 'none'}")
    needed = [p.name for p in parameters if p.name in takes and p.default is p.empty and p.name not in given]
    if needed:
        raise UserError(f"{where} needs a value for {needed[0]}; give {where}.{needed[0]}=…")
    return dict(given)


def has_keywords(function: Callable[..., Any], positional: int) -> bool:
    """Whether a user's function or class takes keywords after its positional parameters."""
    parameters = _parameters(function, "")[positional:]
    return any(p.kind is not p.VAR_POSITIONAL for p in parameters)


def takes(function: Callable[..., Any], *arguments: Any, **keys: Any) -> bool:
    """Returns whether the function can be called so, True if it has no signature to read."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*arguments, **keys)
    except TypeError:
        return False
    return True


def check_call(function: Callable[..., Any], expected: str) -> str:
    """Returns what is wrong with a function that we call with one argument, or "".

    Args:
        expected: the call, for the message: "make(config)".
    """
    if takes(function, None):
        return ""
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}{inspect.signature(function)} cannot be called with one argument: expected {expected}"


def _parameters(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:  # some that are written in C
        raise UserError(
            f"{where}{': ' if where else ''}the parameters of {getattr(function, '__name__', function)!r} cannot be "
            "read; give a function or class that is written in Python"
        ) from error


def described(error: BaseException) -> str:
    """Returns `ValueError: its message (file.py:12)`."""
    text = str(error)
    return f"{type(error).__name__}{': ' if text else ''}{text}{place(error)}"


def place(error: BaseException | None) -> str:
    """Returns where a user's code failed, as ` (file:line)`: the last line that belongs neither to an installed
    package nor to us, else the last one. A syntax error's message says it already."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    if not frames or isinstance(error, SyntaxError):
        return ""
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_OWN)]
    frame = own[-1] if own else frames[-1]
    return f" ({frame.filename}:{frame.lineno})"


def _module(name: str, where: str) -> ModuleType:
    add_named_folder()
    try:
        return importlib.import_module(name)
    except BaseException as error:  # a script may call sys.exit
        if is_interrupt(error):
            raise
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        why = described(error)
        if missing and f"{name}.".startswith(f"{missing}.") and refused(name.partition(".")[0]):
            why = "it is in a run's folder, from which nothing is imported: move it elsewhere"
        elif missing and f"{name}.".startswith(f"{missing}."):
            why = (
                f"there is no module {missing!r} (searched: the current folder, PYTHONPATH and installed "
                "packages; expected package.module:name)"
            )
        raise UserError(f"{where}: module {name} cannot be imported: {why}") from error


def _names(module: ModuleType) -> list[str]:
    """Public functions and classes of the module's own package, not those that it imports from others."""
    package = module.__name__.partition(".")[0]
    return [
        name
        for name, item in inspect.getmembers(module, callable)
        if not name.startswith("_") and (getattr(item, "__module__", None) or "").partition(".")[0] == package
    ]
