"""Finds the views for a kind of recorded world (`World.kind`): text for terminals, pictures for videos.

    lines = lines_of(recording.world.kind)         # None: only figures are shown
    found = frames_of(recording)                   # None: it has no pictures
    data = mettascope_of(recording)                # None: it is no world of MettaGrid's kind

A recording is read from a file without its environment, so only the kind selects the view. The page's views are in
metta_fast/episodes/page/, by the same names. Place in the flow: metta_fast/episodes/views.py calls it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Protocol

from rich.text import Text

from metta_fast.contracts.env import Array
from metta_fast.contracts.recording import Recording

MODULES = {
    "grid": ("metta_fast.envs.grid.text", "metta_fast.envs.grid.picture"),
    "frames": (None, "metta_fast.envs.frame_recorder"),
}
"""{kind: module with `world_lines` or None, module with `frames` and `steps_per_frame`}."""


class Lines(Protocol):
    """Shows a step of a recording as lines of text."""

    def __call__(
        self, recording: Recording, step: int, agent: int | None, *, columns: int, rows: int, ascii: bool
    ) -> list[Text]:
        """Returns at most `rows` lines. `agent` is highlighted; `ascii`: use only ASCII characters."""
        ...


def lines_of(kind: str) -> Lines | None:
    """Returns the function that shows a step of this kind of world as text, or None."""
    module = MODULES.get(kind, (None, None))[0]
    found: Lines | None = None if module is None else importlib.import_module(module).world_lines
    return found


def frames_of(recording: Recording) -> tuple[Iterator[Array], int] | None:
    """Returns the world's pictures, uint8 [height, width, 3], and the steps between them, or None."""
    name = MODULES.get(recording.world.kind, (None, None))[1]
    if name is None:
        return None
    module: Any = importlib.import_module(name)
    return module.frames(recording), module.steps_per_frame(recording)


def mettascope_of(recording: Recording) -> dict[str, Any] | None:
    """Returns the episode as MettaGrid's replay, made from the recorded world, or None."""
    if recording.world.kind != "grid":
        return None
    found: dict[str, Any] = importlib.import_module("metta_fast.envs.grid.mettascope").mettascope(recording)
    return found
