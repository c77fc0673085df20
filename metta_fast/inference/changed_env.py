"""Changes keys of a run's environment for an evaluation: how a policy does where it was not trained.

    metta-fast eval runs/ant env.params.randomize.mass=1.2
    metta_fast.evaluate("runs/ant", changes={"env.params.randomize.mass": 1.2})

Place in the flow: evaluate.py sorts the words of the command by `is_change`, and its load_run applies the changes
before it makes the environment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from metta_fast.config.keys import Config, check_value, find_key, get, path_parts, put, shown
from metta_fast.contracts.errors import UserError

CHANGEABLE = ("env.params", "env.kwargs", "env.max_steps", "env.limit_is_terminal")
"""Keys that an evaluation can change. Those of the first two are the environment's own."""
Changes = Iterable[tuple[str, Any]]


def is_change(word: str) -> bool:
    """Returns whether a word KEY=VALUE changes the environment, rather than naming the run's code."""
    key, equals, _ = word.partition("=")
    return bool(equals) and key.startswith("env.") and not find_key(key).names_code


def apply_changes(config: Config, changes: Changes) -> None:
    """Puts the values into the configuration.

    Raises:
        UserError: a key that an evaluation cannot change, or a value of the wrong type.
    """
    for path, value in changes:
        if find_key(path).path not in CHANGEABLE or path in CHANGEABLE[:2]:
            raise UserError(
                f"{path}={shown(value)}: an evaluation can change env.params.…, env.kwargs.…, env.max_steps and "
                "env.limit_is_terminal; leave it out"
            )
        for depth in range(3, len(path_parts(path))):
            above = ".".join(path_parts(path)[:depth])
            try:
                found = get(config, above)
            except KeyError:
                break
            if found is None:
                put(config, above, {})
            elif not isinstance(found, dict):
                raise UserError(
                    f"{path}={shown(value)}: {above} is {shown(found)} in the run, which has no keys; give {above}=…"
                )
        put(config, path, check_value(path, value))
