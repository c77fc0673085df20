"""Makes text safe for a terminal: names may come from a stranger, and control characters can move the cursor, set the
window's title or make a line read as another."""

from __future__ import annotations

import re

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters but tab and newline, marks that turn the direction of writing, and surrogates."""


def printable(text: object) -> str:
    r"""Returns the text with every control character written as its number: \x1b, \u202e. Lines stay lines."""
    return _CONTROLS.sub(lambda found: _number(ord(found[0])), str(text))


def one_line(text: object) -> str:
    r"""Returns the text as `printable` does, with line ends and tabs as \n and \t: for names."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _number(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
