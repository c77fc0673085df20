"""Records a grid world for replays: facts and tracks of `metta_fast.contracts.recording.World`.

    recorder = GridRecorder(record, batch.states[0]);  recorder.see();  …;  recorder.world()

Tracks, with one row for the reset and one for each step:

    agent_row, agent_col, agent_orientation, agent_frozen, agent_color, agent_glyph   u8 [agents]
    agent_item u8 [agents, 10]; agent_failed u8 [agents]: the step's action failed (a frozen agent's does)
    object_row, object_col, object_phase u8 [objects]; object_item u8 [objects, 10]
    object_due i4 [objects]: the step at which a busy converter has its output or is ready
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.recording import World
from metta_fast.envs.grid.names import ACTIONS, ITEMS, NO_CAP, STATS, TYPES
from metta_fast.envs.grid.state import state_views

AGENT = ("row", "col", "orientation", "frozen", "color", "glyph", "item")
OBJECT = ("row", "col", "phase", "due", "item")
ARGUMENTS = {"move": ("forward", "backward"), "rotate": ("up", "down", "left", "right")}
"""Names of an action's arguments; other actions show the number."""
PLAIN = ("noop", "put_items", "get_items", "swap")
"""Actions without an argument."""
WALL = 1
BUSY = 1
"""Phase of a converter at work; 0 is idle, 2 cooling down."""
FAILED = STATS.index("failed")


class GridRecorder:
    """Watches one env's state bytes (`metta_fast.episodes.record.Recorder`)."""

    def __init__(self, record: Array, state: Array) -> None:
        self._record, self._views = record, state_views(record, state)
        self._objects = int(self._views["num_objects"])
        self._rows: dict[str, list[Array]] = {}
        self._failed = self._views["agent_stat"][:, FAILED].copy()
        self._facts = self._all_facts()

    def see(self) -> None:
        views, objects = self._views, self._objects
        for name in AGENT:
            self._keep(f"agent_{name}", views[f"agent_{name}"])
        for name in OBJECT:
            self._keep(f"object_{name}", views[f"object_{name}"][:objects])
        failed = views["agent_stat"][:, FAILED]
        self._keep("agent_failed", (failed != self._failed).astype(np.uint8))
        self._failed = failed.copy()

    def _keep(self, name: str, values: Array) -> None:
        self._rows.setdefault(name, []).append(values.copy())

    def world(self) -> World:
        return World("grid", self._facts, {name: np.array(rows) for name, rows in self._rows.items()})

    def _all_facts(self) -> dict[str, Any]:
        record, views = self._record, self._views
        cells = views["cell"]
        return {
            "height": int(record["height"]),
            "width": int(record["width"]),
            "walls": ["".join("#" if cell == WALL else "." for cell in row) for row in cells.tolist()],
            "max_steps": int(record["max_steps"]),
            "types": list(TYPES),
            "items": list(ITEMS),
            "actions": list(ACTIONS),
            "arguments": {name: list(values) for name, values in ARGUMENTS.items()},
            "plain": list(PLAIN),
            "agent_group": views["agent_group"].tolist(),
            "object_type": views["object_type"][: self._objects].tolist(),
            "recipes": self._recipes(),
            "rewards": self._rewards(),
        }

    def _recipes(self) -> dict[str, Any]:
        """{type: {"in": {item: count}, "out": …, "ticks", "cooldown"}} of the types on the map."""
        record, found = self._record, {}
        for kind in sorted(set(self._views["object_type"][: self._objects].tolist())):
            gives = _counts(record["recipe_out"][kind])
            if gives:
                found[TYPES[kind]] = {
                    "in": _counts(record["recipe_in"][kind]),
                    "out": gives,
                    "ticks": int(record["conversion_ticks"][kind]),
                    "cooldown": int(record["cooldown"][kind]),
                }
        return found

    def _rewards(self) -> dict[str, Any]:
        """{item: {"weight": …, "cap": … or null}} of the items that are rewarded."""
        weights, caps = self._record["reward_weight"].tolist(), self._record["reward_cap"].tolist()
        return {
            item: {"weight": weight / 1000, "cap": None if cap == NO_CAP else cap / 1000}
            for item, weight, cap in zip(ITEMS, weights, caps)
            if weight
        }


def _counts(recipe: Array) -> dict[str, int]:
    return {ITEMS[i]: count for i, count in enumerate(recipe.tolist()) if count}
