"""A recorded episode as data: numpy arrays here, JSON in files; docs/replay.md describes the form.

    recording.to_json()  ─►  {"format": "metta_fast replay", "version": 1, …}  ─►  Recording.from_json(…)

What changes with time in the world is a track: an array [steps + 1, …] whose row t is the world after t steps. In
JSON a track is its first row and, for every step, the numbers that changed. Nothing here imports torch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError

FORMAT = "metta_fast replay"
VERSION = 1
"""Raised when an older reader would misread a newer file."""
NO_END = -1


@dataclass
class World:
    """What the environment looked like.

    Attributes:
        kind: names its views (views.py, page/): grid, frames, none.
        facts: what stays the same; JSON values.
        tracks: {name: integers [steps + 1, …]}: what changes.
    """

    kind: str = "none"
    facts: dict[str, Any] = field(default_factory=dict)
    tracks: dict[str, Array] = field(default_factory=dict)


@dataclass
class Recording:
    """One episode of one environment with n agents.

    Attributes:
        about: where it comes from: env, player, seed, episode, checkpoint, …; JSON values.
        actions: {"kind": "discrete" or "box", "width", "start": the first number of each head for people}.
        action: [steps, n, width] int32 (from 0) or float32, as the player chose.
        reward: [steps, n] float32, of that action.
        end: [n] int64, the step after which the agent's episode was over; NO_END if it was cut.
        terminal: [n] bool, it ended by the rules and not by a time limit.
        stats: {name: [n] float64} as the environment gave them at the end; NaN where it did not.
    """

    about: dict[str, Any]
    actions: dict[str, Any]
    action: Array
    reward: Array
    end: Array
    terminal: Array
    stats: dict[str, Array]
    world: World

    @property
    def steps(self) -> int:
        return len(self.reward)

    @property
    def agents(self) -> int:
        return int(self.reward.shape[1])

    def returns(self) -> Array:
        """[steps + 1, n] float64: the sum of rewards up to and with each step."""
        sums = np.zeros((self.steps + 1, self.agents))
        np.cumsum(self.reward, axis=0, dtype=np.float64, out=sums[1:])
        return sums

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json` can write; NaN becomes null."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "about": self.about,
            "steps": self.steps,
            "agents": self.agents,
            "actions": self.actions,
            "action": _plain(self.action.reshape(self.steps, -1)),
            "reward": _plain(self.reward),
            "end": self.end.tolist(),
            "terminal": self.terminal.tolist(),
            "stats": {name: _plain(values) for name, values in self.stats.items()},
            "world": {
                "kind": self.world.kind,
                "facts": self.world.facts,
                "tracks": {name: encode_track(track) for name, track in self.world.tracks.items()},
            },
        }

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Recording:
        """The reverse of `to_json`.

        Raises:
            UserError: another format, or a newer version.
        """
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise UserError(f"this is no recording: expected a JSON object with format: {FORMAT!r}")
        if given["version"] > VERSION:
            raise UserError(
                f"this recording is of version {given['version']}, this metta_fast reads up to {VERSION}"
            )
        steps, agents, world = given["steps"], given["agents"], given["world"]
        kind = np.int32 if given["actions"]["kind"] == "discrete" else np.float32
        width = given["actions"]["width"]
        return cls(
            given["about"],
            given["actions"],
            np.array(given["action"], kind).reshape(steps, agents, width),
            np.array(given["reward"], np.float32).reshape(steps, agents),
            np.array(given["end"], np.int64),
            np.array(given["terminal"], np.bool_),
            {name: np.array(values, np.float64) for name, values in given["stats"].items()},
            World(
                world["kind"],
                world["facts"],
                {name: decode_track(track) for name, track in world["tracks"].items()},
            ),
        )

    def save(self, path: str | Path) -> None:
        """Write the JSON."""
        Path(path).write_text(json.dumps(self.to_json(), separators=(",", ":")), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Read what `save` wrote.

        Raises:
            UserError: no such file, or no recording in it.
        """
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise UserError(f"{path} is no recording: it is not JSON") from error


def _plain(values: Array) -> list[Any]:
    """Nested lists; floats in the fewest digits that give the same float again, NaN as None."""
    if values.dtype.kind != "f":
        found: list[Any] = values.tolist()
        return found
    short = {value: _short(value) for value in np.unique(values)}

    def plain(part: Array) -> Any:
        if part.ndim:
            return [plain(inner) for inner in part]
        return short.get(part[()])  # NaN equals no key

    return list(plain(values))


def _short(value: Any) -> float | int:
    number = float(str(value))
    return int(number) if number.is_integer() else number


def encode_track(track: Array) -> dict[str, Any]:
    """{"dtype", "shape" of a row, "start": row 0 flat, "changes": for each step [index, value, index, value, …]}."""
    rows = track.reshape(len(track), -1)
    changes: list[list[int]] = [[] for _ in range(len(rows) - 1)]
    steps, places = np.nonzero(rows[1:] != rows[:-1])
    values = rows[steps + 1, places]
    for step, place, value in zip(steps.tolist(), places.tolist(), values.tolist()):
        changes[step] += (place, value)
    return {
        "dtype": str(track.dtype),
        "shape": list(track.shape[1:]),
        "start": rows[0].tolist(),
        "changes": changes,
    }


def decode_track(given: dict[str, Any]) -> Array:
    """The reverse of `encode_track`: [steps + 1, *shape]."""
    changes = given["changes"]
    rows = np.empty((len(changes) + 1, len(given["start"])), given["dtype"])
    rows[0] = given["start"]
    for step, change in enumerate(changes):
        rows[step + 1] = rows[step]
        rows[step + 1, change[::2]] = change[1::2]
    return rows.reshape(len(rows), *given["shape"])


class Recorder(Protocol):
    """Watches the world of a batch's only environment. A factory gives one by `make_recorder(batch)`, or None."""

    def see(self) -> None:
        """The world as it is now: called after the reset, then after each step of the episode."""

    def world(self) -> World:
        """All that was seen."""
