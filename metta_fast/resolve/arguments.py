"""Reads the words of the command line: which files they choose, which values they give, which code they name.

    env=grid_solo trainer.gamma=0.99 --config-dir ./mine  ──►  Arguments(groups, values, folders, named)

Place in the flow: compose.py calls `parse` first. Hydra's grammar says what a value is. Nothing is imported of what the
words name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from metta_fast.config.extension import ALGORITHMS, ENVS, FEATURES, POLICIES, entry_point_names
from metta_fast.config.gymnasium_id import is_gymnasium_id, recipe_of
from metta_fast.config.keys import GROUPS, LEAF_KINDS, keys, nearest, shown
from metta_fast.config.other_words import translate
from metta_fast.contracts.errors import UserError
from metta_fast.resolve.config_files import leaves, options
from metta_fast.storage.env_folder import take_folder
from metta_fast.storage.remote.address import is_url
from metta_fast.storage.remote.address import parse as parse_address
from metta_fast.storage.user_files import is_folder, user_path
from metta_fast.storage.user_yaml import MOST_DEPTH

OWN = {
    "env": ", an id of Gymnasium such as CartPole-v1, or your own as package.module:function",
    "policy": ", or your own as package.module:Class",
    "algorithm": ", or your own as package.module:Kind",
    "features": ", or your own as package.module:function",
}
"""Text that messages add to the names of a group."""
ENTRY_POINTS = {"env": ENVS, "policy": POLICIES, "algorithm": ALGORITHMS, "features": FEATURES}
GUARD = "@@"
"""Placeholder for the colon of a feature's module:name: Hydra's grammar allows no colon in a dict's keys."""


@dataclass
class Arguments:
    """Holds the words of the command line, sorted by what they do."""

    groups: dict[str, Any]
    """The chosen option of each typed group; of features, a list."""
    values: list[tuple[str, Any]]
    """(dotted key, value), in the order in which they take effect."""
    folders: list[Path]
    """--config-dir, as absolute paths."""
    named: dict[str, str] = field(default_factory=dict)
    """Choices that are not files of configs/: the user's own, by group."""
    selected: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    """Values that a group's choice stands for, by group. Typed values override them."""
    horizon: tuple[str, int] | None = None
    """(as typed, steps of each agent in a batch), of another program's words (config/other_words.py)."""
    notes: list[str] = field(default_factory=list)
    """What such words mean."""


def parse(arguments: list[str]) -> Arguments:
    """Splits arguments into group choices, values and --config-dir folders.

    Raises:
        UserError: a malformed word, an unknown option of a group, or a folder that is not there.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    translated = translate(arguments)
    found = Arguments({}, [], [], horizon=translated.horizon, notes=translated.notes)
    words: list[str] = []
    queue = iter(translated.words)
    for word in queue:
        name, _, value = word.partition("=")
        if name in ("--config-dir", "-cd"):
            folder = user_path(value or next(queue, ""))
            if not (value or folder.name) or not is_folder(folder):
                raise UserError(
                    f"--config-dir: '{folder}' is not a folder; give one that holds env/, hardware/, …"
                )
            found.folders.append(folder.resolve())
        elif word.startswith("-"):
            known = ("--help", "--explain", "--cfg", "--config-dir", "--trust")
            guess = nearest(name, known)
            hint = f"did you mean '{guess}'?" if guess else "known: " + ", ".join(known)
            raise UserError(f"unknown option '{word}'; {hint}")
        else:
            words.append(word)
    parser = OverridesParser.create()
    for word in words:
        if "=" not in word or word.startswith(("=", "~")):
            raise UserError(_not_an_assignment(word, found.folders))
        name, _, value = word.partition("=")
        own = name if _has_own_name(name) else None
        try:
            override = parser.parse_override(f"features={value}" if own else _guarded(word))
        except (HydraException, ValueError, RecursionError):  # Hydra's parser raises the others itself
            if is_url(value):
                parse_address(value, name)  # keys in a URL must not be shown
            raise UserError(
                f"malformed argument '{word}'; a value with special characters goes in quotes: "
                f"'{name}=\"{value}\"'"
            ) from None
        name = own or override.key_or_group
        if override.is_sweep_override():
            hint = "" if name in GROUPS else f"; a list is written {name}=[a,b]"
            raise UserError(f"'{word}' gives several values, but a run takes one{hint}")
        if name.split(".")[0] == "hydra":
            raise UserError(f"'{word}': Hydra's own keys have no effect here; runs are written to run.dir")
        given = _unguarded(override.value())
        if _depth(given) > MOST_DEPTH:
            raise UserError(f"'{word}': its values are nested more than {MOST_DEPTH} deep")
        if name in GROUPS and override.package is None:
            _choose(name, given, found)
        else:
            found.values.append((name, given))
    found.values[:0] = [value for values in found.selected.values() for value in values]
    take_folder(found.groups, found.values)
    return found


def _guarded(word: str) -> str:
    """Returns the argument `features={my_module:add: …}` with GUARD in place of the first of the two colons."""
    if not word.startswith("features="):
        return word
    return re.sub(r"""(['"]?)([A-Za-z_][\w.]*):([A-Za-z_]\w*)\1(?=\s*:)""", rf"\2{GUARD}\3", word)


def _unguarded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            name.replace(GUARD, ":") if isinstance(name, str) else name: _unguarded(item)
            for name, item in value.items()
        }
    return value


def _has_own_name(path: str) -> bool:
    """Returns whether a path ends with a name of the user's that Hydra's grammar may not allow in a key."""
    return path.startswith(LEAF_KINDS) or (path.startswith("features.") and ":" in path)


def _depth(value: Any) -> int:
    """Returns how deep lists and dicts are nested."""
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inside), default=0)


def _is_own(group: str, name: object, found: Arguments) -> bool:
    """Returns whether a group's choice is user code (module:name, or a policy's package.module.Class) or an installed
    package's entry point, rather than a file."""
    if not isinstance(name, str) or group not in ENTRY_POINTS:
        return False
    if group == "env" and _is_id(name, found):
        return False
    if ":" in name or (group == "policy" and "." in name):
        return True
    return name not in options(group, found.folders) and name in entry_point_names(ENTRY_POINTS[group])


def _is_id(name: str, found: Arguments) -> bool:
    """Returns whether `env=name` is an id of Gymnasium. A recipe of this name, or an installed package's entry point,
    comes first."""
    return (
        is_gymnasium_id(name)
        and name not in options("env", found.folders)
        and name not in entry_point_names(ENVS)
    )


def _choose(group: str, value: Any, found: Arguments) -> None:
    """Sets a group's choice: a file, or the values that select user code. It replaces an earlier choice."""
    if isinstance(value, Mapping):
        found.values += leaves({group: value})
        return
    for earlier in (found.groups, found.named, found.selected):
        earlier.pop(group, None)
    several = group == "features" and (value is None or isinstance(value, list))
    choices = list(value or []) if several else [value]
    own = [choice for choice in choices if _is_own(group, choice, found)]
    if own and group == "policy":
        found.selected[group] = [("policy.name", value)]
        return
    if own and group == "algorithm":
        found.named[group] = value
        found.selected[group] = [("algorithm.name", value)]
        return
    if own and group == "env":
        found.groups["env"] = "custom"
        found.selected[group] = [("env.factory", value)]
        return
    if group == "env" and isinstance(value, str) and _is_id(value, found):
        found.groups["env"] = recipe_of(value)
        found.selected[group] = [("env.id", value)]
        return
    found.selected[group] = [(f"features.{name}", {}) for name in own]
    choices = [choice for choice in choices if choice not in own]
    known = options(group, found.folders)
    if group == "hardware":
        known = sorted({*known, "auto"})
    for choice in choices:
        if choice not in known:
            guess = nearest(str(choice), [*known, *_ids(choice)] if group == "env" else known)
            raise UserError(
                f"unknown {group} '{shown(choice)}'"
                + (f"; did you mean '{group}={guess}'?" if guess else ";")
                + f" known: {', '.join(known) or 'none'}{OWN.get(group, '')}"
            )
    found.groups[group] = choices if group == "features" else value


def _ids(choice: object) -> list[str]:
    """Returns the ids of Gymnasium's registry, for `did you mean`: of `env=CartPole` only the versions of CartPole."""
    import gymnasium

    return [name for name in gymnasium.registry if name.rpartition("-v")[0].lower() == str(choice).lower()][
        -1:
    ]


def _not_an_assignment(word: str, folders: Sequence[Path]) -> str:
    if word.startswith("~"):
        return f"'{word}': a key cannot be removed; give it another value, key=value"
    for group in GROUPS:
        if word in options(group, folders):
            return f"'{word}' is not key=value; did you mean '{group}={word}'?"
    example = f"{word}=…" if word in (*keys(), *GROUPS) else "env.num_envs=512"
    return f"'{word}' is not key=value; write for example '{example}'"
