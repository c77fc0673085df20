"""Checks the keys for the chosen algorithm: its own (`algorithm.*`) and those of `trainer.*` that it reads.

A typed key that the algorithm does not read is refused. Such a key from a profile or recipe is reset to its default,
and --explain shows it. Used by resolve.py, before any other step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from metta_fast.algorithms.registry import READ_BY_RUN, AlgorithmKind, kind_of, own_keys
from metta_fast.config.keys import Config, TrainerConfig, check_entry, did_you_mean, get, keys, put, shown
from metta_fast.contracts.errors import UserError

LEFT_OUT = "left out: "
"""Start of the origin of a key that a file sets and the algorithm does not read."""


def unread(kind: AlgorithmKind) -> list[str]:
    """Returns the keys of trainer.* that neither the algorithm nor the run reads."""
    names = (field.name for field in dataclasses.fields(TrainerConfig))
    return [f"trainer.{name}" for name in names if name not in kind.reads | READ_BY_RUN]


def check_algorithm(
    config: Config, origins: dict[str, str], typed: Callable[[str], bool]
) -> tuple[AlgorithmKind, list[str]]:
    """Fills in the algorithm's own keys, and resets keys that it does not read, in place.

    Returns:
        The kind of the algorithm, and messages for the user.

    Raises:
        UserError: unknown algorithm, a typed key that it does not read, a value of its own that is not allowed.
    """
    kind, name = kind_of(config), config.algorithm["name"]
    notes = _own(kind, name, config, origins, typed)
    for path in unread(kind):
        value, default, origin = get(config, path), keys()[path].default, origins.get(path, "default")
        if typed(path):
            reads = ", ".join(f"trainer.{key}" for key in sorted(kind.reads)) or "none of them"
            raise UserError(
                f"{path}={shown(value)}: algorithm={name} does not read this key; remove it. Of trainer.* it reads "
                f"{reads}"
            )
        if value != default:
            put(config, path, default)
            origins[path] = f"{LEFT_OUT}algorithm={name} does not read it ({origin}: {shown(value)})"
    return kind, notes


def _own(
    kind: AlgorithmKind, name: str, config: Config, origins: dict[str, str], typed: Callable[[str], bool]
) -> list[str]:
    """Checks the keys of algorithm.* and sets the missing ones to their defaults."""
    own, notes = own_keys(kind), []
    source = origins.pop("algorithm", "default")
    origins.setdefault("algorithm.name", source)
    for key in [key for key in config.algorithm if key != "name"]:
        path = f"algorithm.{key}"
        inside = [known for known in origins if known == path or known.startswith(path + ".")]
        if path in own:
            where = "" if not inside or typed(inside[0]) else f"{origins[inside[0]]}: "
            config.algorithm[key] = check_entry(own[path], config.algorithm[key], where)
            origins.setdefault(path, source)
            continue
        if any(map(typed, inside)):
            raise UserError(
                f"{path}: unknown key; {did_you_mean(path, own)}algorithm={name} has "
                f"{', '.join(own) or 'no keys of its own'}"
            )
        notes.append(
            f"{path}={shown(config.algorithm.pop(key))} is left out: algorithm={name} has no such key"
        )
        for known in inside:
            del origins[known]
    for path, entry in own.items():
        if entry.path.partition(".")[2] not in config.algorithm:
            put(config, path, entry.default)
            origins[path] = "default"
    return notes
