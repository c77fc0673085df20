"""Checks a name of what new-env and new-robot write: a file, a Python name and the prefix of C functions."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection

from metta_fast.contracts.errors import UserError

LONGEST = 40


def check_name(kind: str, name: str, example: str, *, words: str, more: Collection[str] = ()) -> None:
    """Raises UserError unless it is a short lower-case name and no word of Python.

    Args:
        kind: "robot" or "environment", for the message.
        words: describes the words that are refused, for the message.
        more: words that are refused besides Python's.
    """
    fits = re.fullmatch(r"[a-z][a-z0-9_]*", name) and len(name) <= LONGEST
    if not fits or keyword.iskeyword(name) or name in more:
        raise UserError(
            f"{kind} name {name!r}: expected a lower-case letter, then lower-case letters, digits and _ "
            f"(at most {LONGEST}, not {words}), e.g. {example}"
        )
