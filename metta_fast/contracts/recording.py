"""Holds a recorded episode as numpy arrays, and converts it to and from JSON (docs/replay.md describes the format).

    recording.to_json()  ─►  {"format": "metta_fast replay", "version": 1, …}  ─►  Recording.from_json(…)

A track is an array [steps + 1, …] of one changing part of the world; row t is its state after t steps. In JSON a
track is its first row and, for every step, the numbers that changed. Nothing here imports torch.
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
"""Version of the format; increased when an older reader would misread a newer file."""
NO_END = -1


@dataclass
class World:
    """Describes what the environment looked like during an episode.

    Attributes:
        kind: selects the views (views.py, page/): grid, frames, none.
        facts: properties that do not change; JSON values.
        tracks: {name: integers [steps + 1, …]}: properties that change.
        mettascope: the episode as MettaGrid's own replay, of environments that bring one; it is not part of the JSON.
    """

    kind: str = "none"
    facts: dict[str, Any] = field(default_factory=dict)
    tracks: dict[str, Array] = field(default_factory=dict)
    mettascope: dict[str, Any] | None = None


@dataclass
class Recording:
    """One episode of one environment with n agents.

    Attributes:
        about: origin of the episode: env, player, seed, episode, checkpoint, …; JSON values.
        actions: {"kind": "discrete" or "box", "width", "start": number shown for the first action of each head}.
        action: [steps, n, width] int32 (from 0) or float32, as the player chose.
        reward: [steps, n] float32, the reward of that action.
        end: [n] int64, the step after which the agent's episode was over; NO_END if the recording stopped earlier.
        terminal: [n] bool, True if the rules and not a time limit ended the episode.
        stats: {name: [n] float64} reported by the environment at the end; NaN where it reported none.
        value: [steps, n] float32: the policy's value before each action, of the reward as it was trained on; NaN where
            the player has none. None: not recorded.
        observation: {leaf: [steps + 1, n, *shape]}: what the agents saw after each step, of environments without a
            view of their own and small leaves.
    """

    about: dict[str, Any]
    actions: dict[str, Any]
    action: Array
    reward: Array
    end: Array
    terminal: Array
    stats: dict[str, Array]
    world: World
    value: Array | None = None
    observation: dict[str, Array] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return len(self.reward)

    @property
    def agents(self) -> int:
        return int(self.reward.shape[1])

    def returns(self) -> Array:
        """Returns [steps + 1, n] float64: the sum of rewards up to and including each step."""
        sums = np.zeros((self.steps + 1, self.agents))
        np.cumsum(self.reward, axis=0, dtype=np.float64, out=sums[1:])
        return sums

    def to_json(self) -> dict[str, Any]:
        """Converts to plain values that `json` can write; NaN becomes null."""
        seen = {name: _seen(rows) for name, rows in self.observation.items()}
        more: dict[str, Any] = {"observation": seen} if seen else {}
        if self.value is not None:
            more["value"] = _plain(self.value)
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
            **more,
        }

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Recording:
        """Converts back from the result of `to_json`.

        Raises:
            UserError: the format is another one, or the version is newer.
        """
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise UserError(f"not a recording: expected a JSON object with format: {FORMAT!r}")
        if given["version"] > VERSION:
            raise UserError(
                f"the recording has version {given['version']}, but this metta_fast reads up to version {VERSION}; "
                "update metta_fast"
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
            np.array(given["value"], np.float32).reshape(steps, agents) if "value" in given else None,
            {
                name: np.array(leaf["rows"], leaf["dtype"]).reshape(steps + 1, agents, *leaf["shape"])
                for name, leaf in given.get("observation", {}).items()
            },
        )

    def save(self, path: str | Path) -> None:
        """Writes the recording as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), separators=(",", ":")), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Reads a file written by `save`.

        Raises:
            UserError: the file cannot be read, or is not a recording.
        """
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise UserError(f"{path} is not a recording: it is not JSON") from error


def _seen(rows: Array) -> dict[str, Any]:
    """Encodes a leaf of the observation: flat rows of n · size numbers."""
    flat = rows.reshape(len(rows), -1)
    return {"dtype": str(rows.dtype), "shape": list(rows.shape[2:]), "rows": _plain(flat)}


def _plain(values: Array) -> list[Any]:
    """Converts to nested lists: floats with the fewest digits that restore the same float, NaN as None."""
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
    """Encodes a track as its first row and the changes of each step.

    Returns:
        {"dtype", "shape" of a row, "start": row 0 flat, "changes": for each step [index, value, index, value, …]}.
    """
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
    """Restores a track [steps + 1, *shape] from the result of `encode_track`."""
    changes = given["changes"]
    rows = np.empty((len(changes) + 1, len(given["start"])), given["dtype"])
    rows[0] = given["start"]
    for step, change in enumerate(changes):
        rows[step + 1] = rows[step]
        rows[step + 1, change[::2]] = change[1::2]
    return rows.reshape(len(rows), *given["shape"])


class Recorder(Protocol):
    """Records the world of a batch's only environment; returned by a factory's optional `make_recorder(batch)`.

    It may have a method `close()`, which is called at the end of the episode, also if that is cut short.
    """

    def see(self) -> None:
        """Records the present state; called after the reset and after each step of the episode."""

    def world(self) -> World:
        """Returns everything recorded so far."""
