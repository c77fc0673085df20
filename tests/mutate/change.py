"""Defines one small change to the code, which the tests beside that code should notice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """Replaces a text that occurs exactly once in a file."""

    file: str
    """Path from the repository's root."""
    old: str
    new: str
    breaks: str
    """What no longer holds, in a few words."""
    tests: str
    """Arguments of pytest, separated by spaces."""
    known: str = ""
    """Why no test can notice it; empty: a test should."""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.breaks}"

    def count(self, text: str) -> int:
        """Returns how often the file's text contains the old text."""
        return text.count(self.old)

    def apply(self, text: str) -> str:
        """Returns the changed text.

        Raises:
            ValueError: the old text does not occur exactly once.
        """
        if self.count(text) != 1:
            raise ValueError(f"{self.name}: its old text occurs {self.count(text)} times, expected once")
        return text.replace(self.old, self.new)


def in_file(
    file: str, tests: str, changes: Iterable[tuple[str, str, str] | tuple[str, str, str, str]]
) -> list[Change]:
    """Makes changes to one file, whose tests are the same: (old, new, what breaks[, why no test can notice])."""
    return [Change(file, change[0], change[1], change[2], tests, *change[3:]) for change in changes]
