"""Finds keys of the schema by their paths, checks values, and converts a Config to and from a plain dict.

    key=value arguments  ─►  compose.py  ─►  resolve.py  ─►  Config without `auto`

The dataclasses of keys are in metta_fast/config/schema.py and can be imported from here.
"""

from __future__ import annotations

import dataclasses
import difflib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from metta_fast.config.key import key_metadata
from metta_fast.config.schema import (
    Config,
    DistributedConfig,
    EnvConfig,
    ImageConfig,
    PolicyConfig,
    RunConfig,
    TrainerConfig,
    VectorConfig,
    WandbConfig,
)
from metta_fast.contracts.errors import UserError

__all__ = [
    "GROUPS",
    "LEAF_KINDS",
    "Config",
    "DistributedConfig",
    "EnvConfig",
    "ImageConfig",
    "Key",
    "PolicyConfig",
    "RunConfig",
    "TrainerConfig",
    "VectorConfig",
    "WandbConfig",
    "check_entry",
    "check_value",
    "config_from_dict",
    "config_to_dict",
    "dataclass_keys",
    "did_you_mean",
    "find_key",
    "get",
    "keys",
    "nearest",
    "path_parts",
    "put",
    "shown",
]

GROUPS = ("hardware", "env", "policy", "algorithm", "features")
"""Folders under configs/: `group=option` on the command line chooses a file of one."""


@dataclass(frozen=True)
class Key:
    """One leaf of the schema, found by its dotted path."""

    path: str
    default: Any
    help: str
    choices: tuple[Any, ...] | None
    kind: str
    auto: bool
    null: bool
    low: float | None
    high: float | None
    names_code: bool = False
    """Values may name code to import."""
    words: tuple[str, ...] = ()
    """Texts that are allowed beside the kind's values."""

    def expected(self) -> str:
        """Returns which values this key takes, in words."""
        if self.choices:
            return "one of " + ", ".join(map(str, self.choices))
        words = {
            "int": "a whole number",
            "float": "a number",
            "bool": "true or false",
            "str": "text",
            "names": "a list of names, as [a, b]",
            "dict": "keys and values",
            "named": "a name, or a name with keys of its own as {name: x, key: value}",
        }[self.kind]
        if self.low is not None and self.high is not None:
            words += f" from {_number(self.low)} to {_number(self.high)}"
        elif self.low is not None:
            words += f" of at least {_number(self.low)}"
        also = "".join(f" or {word}" for word in self.words)
        return words + also + (" or auto" if self.auto else "") + (" or null" if self.null else "")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:g}"


MOST = sys.float_info.max
LARGEST = {"int": float((1 << 31) - 1), "float": 1e30}
"""Largest size of a number whose key has no limit of its own: counters of 32 bits hold it, and float32."""


@cache
def keys() -> dict[str, Key]:
    """Returns every key of the schema by its dotted path, in the schema's order."""
    return dataclass_keys(Config(), "")


def dataclass_keys(node: Any, prefix: str) -> dict[str, Key]:
    """Returns the keys of a dataclass by their paths, which begin with `prefix`; those of dataclasses in it too.

    A field that was not made with schema.key has the kind of its default and no limits.
    """
    found: dict[str, Key] = {}
    for item in dataclasses.fields(node):
        value, path = getattr(node, item.name), prefix + item.name
        if dataclasses.is_dataclass(value):
            found |= dataclass_keys(value, path + ".")
        else:
            found[path] = Key(path, value, **(item.metadata or key_metadata(value)))
    return found


OTHER_NAMES = {
    "lr": "trainer.learning_rate",
    "epochs": "trainer.update_epochs",
    "ent_coef": "trainer.entropy_coef",
    "n_envs": "env.num_envs",
    "n_steps": "trainer.batch_size",
    "horizon": "trainer.batch_size",
    "envs_per_batch": "vector.async_factor",
    "lambda": "trainer.gae_lambda",
    "workers": "vector.num_workers",
    "threads": "vector.num_threads",
    "name": "run.name",
    "device": "trainer.device",
    "clip": "trainer.clip_coef",
    "steps": "trainer.total_timesteps",
    "timesteps": "trainer.total_timesteps",
}
"""Names of our keys in other trainers, for `did you mean` only."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known word most similar to `word`, as a whole or in its last part, or None."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close and difflib.SequenceMatcher(None, word, close[0]).ratio() > 0.8:
        return close[0]
    tails: dict[str, str] = {}
    for name in names:
        tails.setdefault(name.rsplit(".", 1)[-1], name)
    tail = difflib.get_close_matches(word.rsplit(".", 1)[-1], list(tails), n=1, cutoff=0.75)
    return tails[tail[0]] if tail else (close[0] if close else None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns `did you mean 'x'? `, with a trailing space for a message, or an empty string."""
    near = nearest(word, known)
    return f"did you mean '{near}'? " if near else ""


def find_key(path: str, where: str = "") -> Key:
    """Returns the key at `path`; inside a dict (env.params.x), the dict's key. Raises UserError if unknown."""
    schema = keys()
    if path in schema:
        return schema[path]
    for name, entry in schema.items():
        if entry.kind in ("dict", "named") and path.startswith(name + "."):
            return entry
    if any(name.startswith(path + ".") for name in schema):
        raise UserError(
            f"{where}'{path}' is a group of keys; give one of its keys, for example "
            f"'{next(n for n in schema if n.startswith(path + '.'))}=…'"
        )
    guess = OTHER_NAMES.get(path.rsplit(".", 1)[-1]) or nearest(path, [*schema, *GROUPS])
    hint = f"did you mean '{guess}'?" if guess else "`--help` lists every key"
    raise UserError(f"{where}unknown key '{path}'; {hint}")


LEAF_KINDS = "env.leaf_kinds."
"""Start of the keys that end with the name of a leaf of the observation."""


def path_parts(path: str) -> list[str]:
    """Returns the names of a dotted path; a feature's module:name, or the name of a leaf, which may hold dots, is one
    of them."""
    if path.startswith(LEAF_KINDS):
        return ["env", "leaf_kinds", path.removeprefix(LEAF_KINDS)]
    head, _, rest = path.partition(".")
    if head != "features" or ":" not in rest:
        return path.split(".")
    module, _, after = rest.partition(":")
    name, *inside = after.split(".")
    return [head, f"{module}:{name}", *inside]


def check_value(path: str, value: Any, where: str = "") -> Any:
    """Returns `value` in the key's type. Raises UserError: unknown key, wrong type, value out of range."""
    entry = find_key(path, where)
    if path != entry.path:  # inside a free-form dict: the factory, the algorithm or the feature checks it
        return value
    return check_entry(entry, value, where)


def check_entry(entry: Key, value: Any, where: str = "") -> Any:
    """Returns `value` in the type of one key. Raises UserError: wrong type, value out of range."""
    if (value is None and entry.null) or (entry.auto and value == "auto") or value in entry.words:
        return value
    given = _convert(value, entry.kind)
    wrong = given is None or (entry.choices is not None and given not in entry.choices)
    hint = ""
    if not wrong and entry.kind in ("int", "float"):
        wrong = (entry.low is not None and given < entry.low) or (
            entry.high is not None and given > entry.high
        )
        if not wrong and entry.high is None and abs(given) > LARGEST[entry.kind]:
            wrong, hint = True, f", at most {LARGEST[entry.kind]:.10g}"
    if given == "" and entry.kind == "str" and entry.default != "":
        wrong, hint = True, " that is not empty; leave the key out"
    if wrong:
        guess = nearest(str(value), [str(c) for c in entry.choices]) if entry.choices else None
        hint += f"; did you mean '{guess}'?" if guess else ""
        raise UserError(f"{where}{entry.path}={shown(value)}: expected {entry.expected()}{hint}")
    return given


def _convert(value: Any, kind: str) -> Any:
    """Returns `value` as `kind`, or None if that would change its meaning."""
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if kind in ("int", "float"):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MOST:
            return None  # NaN too
        if kind == "float":
            return float(value)
        return int(value) if value == int(value) else None
    if kind == "str":
        return str(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None
    if kind == "names":
        wrong = not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value)
        return None if wrong else list(value)
    if kind == "named":
        given = {"name": value} if isinstance(value, str) else value
        return dict(given) if isinstance(given, Mapping) and isinstance(given.get("name"), str) else None
    return dict(value) if isinstance(value, Mapping) else None


def shown(value: Any) -> str:
    """Returns a value as it is written on the command line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {shown(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)


def config_to_dict(config: Config) -> dict[str, Any]:
    """Returns all values as a nested plain dict, for YAML and checkpoints."""
    return dataclasses.asdict(config)


def config_from_dict(values: Mapping[str, Any]) -> Config:
    """Returns the Config of a nested dict; a missing key takes its default.

    Raises:
        UserError: unknown key, wrong type, value out of range.
    """
    config = Config()

    def fill(node: Any, given: Mapping[str, Any], prefix: str) -> None:
        for name, value in given.items():
            child = getattr(node, name, None)
            if dataclasses.is_dataclass(child):
                if not isinstance(value, Mapping):
                    raise UserError(f"{prefix}{name}={value!r}: expected a group of keys")
                fill(child, value, f"{prefix}{name}.")
            else:
                setattr(node, name, check_value(prefix + name, value))

    fill(config, values, "")
    return config


def get(config: Config, path: str) -> Any:
    """Returns the value at a dotted path of the schema, or inside one of its dicts."""
    node: Any = config
    for name in path_parts(path):
        node = node[name] if isinstance(node, dict) else getattr(node, name)
    return node


def put(config: Config, path: str, value: Any) -> None:
    """Sets the value at a dotted path of the schema, or inside one of its dicts."""
    *above, last = path_parts(path)
    node: Any = config
    for name in above:
        node = node.setdefault(name, {}) if isinstance(node, dict) else getattr(node, name)
    if isinstance(node, dict):
        node[last] = value
    else:
        setattr(node, last, value)
