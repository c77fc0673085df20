"""Makes a configuration key: a dataclass field with its default, help and allowed values.

    rows: int = key(8, "rows that each agent gives in an epoch", low=1)

The schema is made of them, and so are the keys of an algorithm of one's own.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any


def key(
    default: Any,
    help: str,
    choices: tuple[Any, ...] | None = None,
    *,
    kind: str | None = None,
    auto: bool = False,
    null: bool = False,
    low: float | None = None,
    high: float | None = None,
    names_code: bool = False,
    words: tuple[str, ...] = (),
) -> Any:
    """Returns a field of a dataclass of keys.

    Args:
        choices: the allowed values where they are few.
        kind: "int", "float", "bool", "str", "names" (a list of them), "dict" or "named" (a name with keys of its
            own); by default the kind of `default`.
        auto, null: the word `auto`, or null, is allowed as well.
        low, high: the least and greatest value, both included.
        names_code: values may name code to import, as module:name. Where they come from a run, config/trust.py decides
            whether that is done; load_named refuses other keys.
        words: texts that are allowed beside the kind's values.
    """
    metadata = key_metadata(
        default,
        help=help,
        choices=choices,
        kind=kind,
        auto=auto,
        null=null,
        low=low,
        high=high,
        names_code=names_code,
        words=words,
    )
    if isinstance(default, (dict, list)):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def key_metadata(default: Any, **given: Any) -> dict[str, Any]:
    """Returns the metadata of a field: what `key` was given, the rest as for a key without limits."""
    kind = given.pop("kind", None) or type(default).__name__
    plain = {"help": "", "choices": None, "auto": False, "null": False, "low": None, "high": None}
    return plain | {"names_code": False, "words": ()} | given | {"kind": kind}
