"""Decides whether the code that a run names may be imported: an environment's module, a policy's class, …

    check_code(names, meta, run, given)     # raises UserError, with what to type; nothing was imported
    meta["code"] = mark(config)             # in the checkpoints of a run that this user begins

A run's folder may come from a stranger, and importing a module runs it. A name counts if it was typed on this command
as well (`env=my:make`), or the command says `--trust` (Python: trust=True), or this user began the run on this machine:
its checkpoints hold an HMAC of the configuration and of the places of its modules, by a secret of this user's
(machine/user_token.py). With METTA_FAST_TOKEN, machines that share runs share a secret; places may differ there.

The names of entry points need none of this: they lead to packages that the user installed, which offer them for this
use. Every key that can name code is marked in the schema (`names_code=True`), and extension.load_named refuses others.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from metta_fast.config.extension import place_of
from metta_fast.config.gymnasium_id import is_gymnasium_id, names_module
from metta_fast.config.keys import find_key, keys, path_parts
from metta_fast.contracts.errors import UserError
from metta_fast.machine.user_token import VARIABLE, is_signed, shared_token, signature, user_token

GROUPS = {"env.factory": "env", "env.id": "env", "policy.name": "policy", "algorithm.name": "algorithm"}
"""Keys that a group's word sets: `env=my:make` is env.factory=my:make, `env=my:Env-v0` is env.id=my:Env-v0."""
PATH = "env.path"
"""The key that names code by its folder."""
_INSIDE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
"""A name of code within a feature's or an algorithm's own keys."""


class Named(NamedTuple):
    """Code that a configuration names."""

    key: str
    """`env.factory`; of a feature `features.my_module:add`."""
    name: str
    """`module:name`, or `module.name`."""

    @property
    def module(self) -> str:
        if self.key == PATH:
            return os.path.realpath(self.name)
        if self.key == "env.id" and ":" not in self.name:
            return self.name
        return self.name.partition(":")[0] if ":" in self.name else self.name.rpartition(".")[0]

    @property
    def meaning(self) -> tuple[str, str]:
        """The same for both ways to write a name."""
        if self.key == PATH:
            return self.key, self.module
        name = self.name.rpartition(":")[2] if ":" in self.name else self.name.rpartition(".")[2]
        return self.key, f"{self.module}:{name}"

    def shown(self) -> str:
        return f"{self.key.removesuffix('.' + self.name)}={self.name}"

    def word(self) -> str:
        """Returns what to type to name it."""
        feature = self.key == f"features.{self.name}"
        if self.key == "env.id" and not is_gymnasium_id(self.name):
            return f"env.id={self.name}"
        return f"{'features' if feature else GROUPS.get(self.key, self.key)}={self.name}"


@dataclass(frozen=True)
class Given:
    """What a command or call says about the code of the run that it opens."""

    typed: frozenset[Named] = frozenset()
    """Code that it names itself."""
    trust: bool = False
    """--trust, or trust=True."""
    in_python: bool = False
    """A call, not a command: for messages."""


NOTHING = Given()
"""A command that says nothing."""
A_CALL = Given(in_python=True)
"""A call that says nothing."""


def code_named(config: Mapping[str, Any]) -> list[Named]:
    """Returns all code that a configuration, as nested dicts, names."""
    found: list[Named] = []
    for path, entry in keys().items():
        if entry.names_code:
            value = _get(config, path)
            if entry.kind == "named":
                found += _of_named(path, value)
            elif entry.kind == "dict":
                found += _of_dict(path, value)
            else:
                found += _of_leaf(path, value)
    return found


def typed_code(words: Iterable[str]) -> frozenset[Named]:
    """Returns the code that words like `env=my:make`, `policy.encoder=my:Cnn` or `features=[a:b,c:d]` name.

    Raises:
        UserError: a word of another form, or a key that cannot name code.
    """
    import yaml

    found: list[Named] = []
    for word in words:
        key, equals, text = word.partition("=")
        path = next((path for path, group in GROUPS.items() if group == key), key)
        if key == "env" and is_gymnasium_id(text):
            path = "env.id"
        if not equals or not (path == "features" or find_key(path).names_code):
            can = ", ".join(dict.fromkeys(f"{GROUPS.get(path, path)}=…" for path in _paths()))
            raise UserError(f"'{word}': expected the name of code that the run uses; {can}")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        if path == "features":
            value = {name: {} for name in value} if isinstance(value, list) else {str(value): {}}
        nested: dict[str, Any] = {}
        node, (*above, last) = nested, path_parts(path)
        for part in above:
            node = node.setdefault(part, {})
        node[last] = value
        found += code_named(nested)
    return frozenset(found)


def add_code_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments by which a command names or trusts the code of the run that it opens."""
    parser.add_argument(
        "names",
        metavar="KEY=NAME",
        nargs="*",
        default=[],
        help="code that the run names, to allow its import: env=my_module:make, policy=my_module.Net. Runs that you "
        "began on this machine do not need it",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="import whatever code the run names, also if somebody else began it",
    )


def given_code(given: argparse.Namespace) -> Given:
    """Returns what the arguments of `add_code_arguments` say."""
    return Given(typed_code(given.names), given.trust)


def given_in_call(trust: bool, code: Mapping[str, Any]) -> Given:
    """Returns what a call says, as load_policy(run, env="my_module:make", policy__encoder=Cnn)."""
    words = []
    for key, value in code.items():
        if callable(value):
            value = f"{value.__module__}:{value.__qualname__}"
        if isinstance(value, (list, tuple)):
            value = f"[{','.join(map(str, value))}]"
        words.append(f"{key.replace('__', '.')}={value}")
    return Given(typed_code(words), trust, in_python=True)


def check_code(
    names: Sequence[Named],
    meta: Mapping[str, Any],
    run: str | os.PathLike[str],
    given: Given,
) -> None:
    """Allows the import of the code that a run names, or refuses it. Imports nothing.

    Args:
        names: code that is about to be imported because the run names it.
        meta: of the run's checkpoint, with `config` and the `mark`.
        run: its path, for the message.

    Raises:
        UserError: the names to type, and the other ways.
    """
    typed = {named.meaning for named in given.typed}
    unknown = [named for named in names if named.meaning not in typed]
    if not unknown or given.trust:
        return
    why = _not_begun_here(meta, unknown)
    if why is None:
        return
    listed = ", ".join(named.shown() for named in unknown)
    words = " ".join(dict.fromkeys(named.word() for named in unknown))
    if given.in_python:
        way = f"name it in this call ({_keywords(unknown)}), give trust=True"
    else:
        way = f"type {words} as well, add --trust"
    raise UserError(
        f"{run} names code that would be imported, {listed}, and {why}. If you know this code, {way}, or set "
        f"{VARIABLE} as on the machine that began the run"
    )


def check_typed(names: Sequence[Named], run: str | os.PathLike[str], given: Given) -> None:
    """Raises UserError if code was typed for a run that does not name it."""
    known = {named.meaning for named in names}
    for named in sorted(named for named in given.typed if named.meaning not in known):
        there = ", ".join(own.shown() for own in names) or "no code"
        raise UserError(f"{named.word()}: {run} does not name it, but {there}; leave it out")


def mark(config: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns what a checkpoint stores so that this user may use the code that `config` names; None: it names none,
    or there is no token.

    Call it only for a configuration that is in use: all its code was allowed.
    """
    names = code_named(config)
    if not names:
        return None
    made = {}
    own, shared = user_token(make=True), shared_token()
    if own is not None:
        made["config"] = signature(own, _message(config))
        made["places"] = signature(own, _message(config, _places(names)))
    if shared is not None:
        made["shared"] = signature(shared, _message(config))
    return made or None


def _not_begun_here(meta: Mapping[str, Any], names: Sequence[Named]) -> str | None:
    """Returns why a run's mark does not allow its code, or None."""
    marks, config = meta.get("code"), meta.get("config")
    if not isinstance(marks, Mapping) or not isinstance(config, Mapping):
        return "was not begun by this user on this machine"
    if is_signed(shared_token(), _message(config), marks.get("shared")):
        return None
    own = user_token()
    if not is_signed(own, _message(config), marks.get("config")):
        return "was not begun by this user on this machine"
    if is_signed(own, _message(config, _places(code_named(config))), marks.get("places")):
        return None
    places = _places(names).items()
    there = ", ".join(
        f"{module} is now {place}" if place else f"there is no {module}" for module, place in places
    )
    return f"was begun with code in another place (here {there})"


def _message(config: Mapping[str, Any], places: Mapping[str, str] | None = None) -> bytes:
    """Returns what is signed; the same for a configuration and for what JSON gives back of it."""
    plain = json.loads(json.dumps(config))
    return b"metta_fast run 1\n" + json.dumps([plain, places], sort_keys=True).encode()


def _places(names: Iterable[Named]) -> dict[str, str]:
    """Returns where the top package of each name is found."""
    folders = {named.module for named in names if named.key == PATH}
    tops = sorted({named.module.partition(".")[0] for named in names if named.key != PATH})
    return {folder: folder for folder in sorted(folders)} | {top: place_of(top) for top in tops}


def _keywords(names: Sequence[Named]) -> str:
    pairs = (named.word().partition("=") for named in names)
    return ", ".join(f"{key.replace('.', '__')}={value!r}" for key, _, value in pairs)


def _paths() -> list[str]:
    """Returns the keys that name code."""
    return [
        f"{path}.name" if entry.kind == "named" else path
        for path, entry in keys().items()
        if entry.names_code
    ]


def _of_leaf(path: str, value: Any) -> Iterator[Named]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _of_leaf(path, item)
    elif isinstance(value, str) and (
        ":" in value
        or ("." in value and path != "env.id")
        or (path == "env.id" and names_module(value))
        or (value and path == PATH)
    ):
        yield Named(path, value)


def _of_named(path: str, value: Any) -> Iterator[Named]:
    if isinstance(value, Mapping):
        yield from _of_leaf(f"{path}.name", value.get("name"))
        for name, item in value.items():
            if name != "name":
                yield from _inside(f"{path}.{name}", item)
    else:
        yield from _of_leaf(f"{path}.name", value)


def _of_dict(path: str, value: Any) -> Iterator[Named]:
    """Yields code named by keys and inside values."""
    if not isinstance(value, Mapping):
        return
    for name, item in value.items():
        if ":" in str(name):
            yield Named(f"{path}.{name}", str(name))
        yield from _inside(f"{path}.{name}", item)


def _inside(path: str, value: Any) -> Iterator[Named]:
    """Yields texts that look like module:name within the free-form values of a key that names code."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _inside(f"{path}.{name}", item)
            yield from _inside(path, name)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _inside(path, item)
    elif isinstance(value, str) and _INSIDE.fullmatch(value):
        yield Named(path, value)


def _get(config: Mapping[str, Any], path: str) -> Any:
    node: Any = config
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
