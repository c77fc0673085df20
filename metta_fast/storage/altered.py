"""Names what is wrong in a checkpoint whose checksums match: it was altered, or another version wrote it.

    with reading(path, "algorithm.pt"):
        algorithm.load_state_dict(state)        # whatever this raises becomes one line, naming file and key

A file that is cut short is damage, and the checkpoint before it is used instead. Altered content is not: somebody
changed it on purpose, so a command stops and says where.

Place in the flow: checkpoint.py checks meta.json; run/trainer.py and inference/ wrap the loading of states.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import VectorError

_STEP = re.compile(r"step_(\d+)")
MOST = 1 << 62
"""Largest count (of steps, of epochs) that a checkpoint may hold."""


class AlteredCheckpoint(UserError):
    """A file of a checkpoint has the right checksum and the wrong content."""


class WrongState(ValueError):
    """An entry of a loaded state is missing, or of the wrong type, shape or value.

    Attributes:
        key: its dotted path.
    """

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key} {problem}")
        self.key = key


def altered(path: Path, name: str, problem: str) -> AlteredCheckpoint:
    """Returns the error for the file `name` of the checkpoint `path`. problem: begins with the key."""
    before = _before(path)
    cure = (
        f"use an earlier checkpoint: {before} (resume={before} continues from it)"
        if before
        else "restore it from a copy, or start a new run"
    )
    return AlteredCheckpoint(
        f"{path / name}: {problem}. Its checksum matches, so it was altered, or another version wrote it; {cure}"
    )


@contextmanager
def reading(path: Path, name: str) -> Iterator[None]:
    """Turns what is raised while the file `name` of the checkpoint `path` is used into one AlteredCheckpoint.

    Errors that name their cause themselves (UserError, EnvError, VectorError) and a full memory pass; a UserError gets
    the file's name.
    """
    try:
        yield
    except UserError as error:
        if str(path / name) in str(error):
            raise
        raise UserError(f"{path / name}: {error}") from error
    except (EnvError, VectorError, MemoryError):
        raise
    except WrongState as error:
        raise altered(path, name, str(error)) from error
    except Exception as error:
        text = " ".join(str(error).split())
        what = f"has no key {text}" if isinstance(error, KeyError) else f"{type(error).__name__}: {text}"
        raise altered(path, name, what[:300]) from error


def entry(state: Any, key: str, where: str = "") -> Any:
    """Returns state[key]. where: the dotted path of `state`, with a dot at its end.

    Raises:
        WrongState: there is no such key, or `state` is no mapping.
    """
    if not isinstance(state, Mapping):
        raise WrongState(where.rstrip(".") or "the state", f"is {_kind(state)}, expected keys and values")
    if key not in state:
        raise WrongState(f"{where}{key}", "is missing")
    return state[key]


def count(value: Any, key: str) -> int:
    """Returns a whole number of at least 0, or raises WrongState."""
    if type(value) is not int or not 0 <= value <= MOST:
        raise WrongState(key, f"is {_shown(value)}, expected a whole number of at least 0")
    return value


def number(value: Any, key: str, low: float = 0.0) -> float:
    """Returns a finite number of at least `low`, or raises WrongState."""
    if type(value) not in (int, float) or not abs(value) < 1e300 or not isfinite(value) or value < low:
        raise WrongState(key, f"is {_shown(value)}, expected a finite number of at least {low:g}")
    return float(value)


def text(value: Any, key: str) -> str:
    """Returns a string, or raises WrongState."""
    if not isinstance(value, str):
        raise WrongState(key, f"is {_shown(value)}, expected text")
    return value


def check_meta(meta: Any) -> None:
    """Checks the types of meta.json's own keys, as far as they are there; `step` must be.

    Raises:
        WrongState: one is of the wrong type.
    """
    count(entry(meta, "step"), "step")
    for key, check in _META.items():
        if key in meta:
            check(meta[key], key)


def _check_score(value: Any, key: str) -> None:
    if value is not None:
        text(entry(value, "name", f"{key}."), f"{key}.name")
        number(entry(value, "value", f"{key}."), f"{key}.value", -1e300)


def _check_mapping(value: Any, key: str) -> None:
    if not isinstance(value, dict):
        raise WrongState(key, f"is {_shown(value)}, expected keys and values")


def _check_texts(value: Any, key: str) -> None:
    _check_mapping(value, key)
    for path, origin in value.items():
        text(origin, f"{key}.{path}")


_META: dict[str, Callable[[Any, str], Any]] = {
    "epoch": count,
    "seconds": number,
    "score": _check_score,
    "config": _check_mapping,
    "origins": _check_texts,
    "groups": _check_texts,
    "version": text,
    "torch": text,
    "run_id": text,
}


def _before(path: Path) -> Path | None:
    """Returns the checkpoint before `path` in its folder."""
    mine = _STEP.fullmatch(path.name)
    if mine is None:
        return None
    try:
        found = {
            int(match[1]): other
            for other in path.parent.iterdir()
            if (match := _STEP.fullmatch(other.name)) and int(match[1]) < int(mine[1])
        }
    except OSError:
        return None
    return found[max(found)] if found else None


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _shown(value: Any) -> str:
    """Returns a value of JSON or of a state on one short line."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            shown = repr(value)
        except ValueError:  # an int of more than 4300 digits
            shown = "a huge number"
        return shown if len(shown) <= 60 else f"{shown[:57]}…"
    return _kind(value)
