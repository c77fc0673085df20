"""Writes a recorded episode of the grid world as MettaGrid's replay, version 4, which its viewer MettaScope shows.

    data = mettascope(recording)        # metta_fast/episodes/mettascope.py compresses and writes it

Step t is the world after the (t+1)-th action, as the package's writer counts. A field that never changes is its value,
others are a list of [step, value] of the changes. Locations are [x, y]; inventories [[item, count], …].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.recording import Recording

VERSION = 4
VIEW = 11
"""Side of the window that an agent sees."""
TOKENS = (200, 3)
BUSY, COOLING = 1, 2
"""Phases of a converter."""
FEATURES = (
    *(("type", 1.0), ("agent:group", 10.0), ("hp", 30.0), ("agent:frozen", 1.0), ("agent:orientation", 1.0)),
    *(("agent:color", 255.0), ("converting", 1.0), ("swappable", 1.0), ("episode_completion_pct", 255.0)),
    *(("last_action", 10.0), ("last_action_arg", 10.0), ("last_reward", 100.0), ("agent:glyph", 255.0)),
    ("resource_rewards", 255.0),
)
"""Names and scales of the features of a token; those of the items follow."""


def mettascope(recording: Recording) -> dict[str, Any]:
    """Returns the replay as plain values for JSON, of a recording whose world is a grid."""
    facts, n = recording.world.facts, recording.agents
    types, items, actions = facts["types"], facts["items"], facts["actions"]
    tags = {f"type:{name}": number for number, name in enumerate(sorted(types))}
    objects = [
        _fixed("wall", [x, y])
        for y, row in enumerate(facts["walls"])
        for x, cell in enumerate(row)
        if cell == "#"
    ]
    objects += [_thing(recording, k) for k in range(len(facts["object_type"]))]
    objects += [_agent(recording, k) for k in range(n)]
    for number, thing in enumerate(objects, 1):
        thing["id"] = number
        thing["tag_ids"] = [tags[f"type:{thing['type_name']}"]]
    seed = recording.about.get("seed", 0)
    return {
        "version": VERSION,
        "action_names": actions,
        "animation_names": ["none", "bump"],
        "item_names": items,
        "type_names": types,
        "capacity_names": [],
        "tags": tags,
        "map_size": [facts["width"], facts["height"]],
        "num_agents": n,
        "max_steps": recording.steps,
        "mg_config": {
            "label": str(recording.about.get("env", "grid")),
            "game": {
                "num_agents": n,
                "max_steps": facts["max_steps"],
                "resource_names": items,
                "obs": {"width": VIEW, "height": VIEW, "num_tokens": TOKENS[0], "token_dim": TOKENS[1]},
            },
        },
        "policy_env_interface": {
            "obs_features": [
                {"id": number, "name": name, "normalization": scale}
                for number, (name, scale) in enumerate(
                    [*FEATURES, *((f"inv:{item}", 100.0) for item in items)]
                )
            ],
            "tags": sorted(tags),
            "action_names": actions,
            "num_agents": n,
            "observation_shape": list(TOKENS),
            "egocentric_shape": [VIEW, VIEW],
        },
        "objects": objects,
        "infos": {
            "game": {},
            "agent": {
                name: float(values.mean())
                for name, values in recording.stats.items()
                if not np.isnan(values).any()
            },
            "attributes": {
                "seed": seed,
                "map_w": facts["width"],
                "map_h": facts["height"],
                "steps": recording.steps,
                "max_steps": facts["max_steps"],
            },
            "episode_rewards": recording.returns()[-1].tolist(),
        },
    }


def _fixed(type_name: str, location: Any) -> dict[str, Any]:
    """Returns an object with all that the format requires."""
    return {
        "id": 0,
        "type_name": type_name,
        "location": location,
        "orientation": 0,
        "inventory": [],
        "inventory_max": 0,
        "color": 0,
    }


def _thing(recording: Recording, k: int) -> dict[str, Any]:
    """Returns a block or a converter."""
    facts, tracks = recording.world.facts, recording.world.tracks
    items, name = facts["items"], facts["types"][facts["object_type"][k]]
    found = _fixed(name, _places(tracks["object_col"][1:, k], tracks["object_row"][1:, k]))
    found["inventory"] = _held(tracks["object_item"][1:, k])
    recipe = facts["recipes"].get(name)
    if recipe is None:
        return found
    phase, due = tracks["object_phase"][1:, k], tracks["object_due"][1:, k]
    left = np.maximum(due - np.arange(1, len(due) + 1), 0)
    for direction in ("in", "out"):
        found[f"{direction}put_resources"] = sorted(
            [items.index(item), count] for item, count in recipe[direction].items()
        )
    return found | {
        "output_limit": 0,
        "conversion_duration": recipe["ticks"],
        "cooldown_duration": recipe["cooldown"],
        "conversion_remaining": _series(np.where(phase == BUSY, left, 0), float),
        "is_converting": _series(phase == BUSY, bool),
        "is_cooling_down": _series(phase == COOLING, bool),
    }


def _agent(recording: Recording, k: int) -> dict[str, Any]:
    facts, tracks, n = recording.world.facts, recording.world.tracks, recording.steps
    frozen = tracks["agent_frozen"][1:, k]
    return _fixed("agent", _places(tracks["agent_col"][1:, k], tracks["agent_row"][1:, k])) | {
        "orientation": _series(tracks["agent_orientation"][1:, k], int),
        "inventory": _held(tracks["agent_item"][1:, k]),
        "color": _series(tracks["agent_color"][1:, k], int),
        "is_agent": True,
        "agent_id": k,
        "vision_size": VIEW,
        "action_id": _series(recording.action[:n, k, 0], int),
        "action_param": _series(recording.action[:n, k, 1], int),
        "action_success": _series(tracks["agent_failed"][1:, k] == 0, bool),
        "current_reward": _series(recording.reward[:, k], float),
        "total_reward": _series(recording.returns()[1:, k], float),
        "is_frozen": _series(frozen > 0, bool),
        "frozen_progress": _series(frozen, int),
        "frozen_time": int(frozen.max(initial=0)),
        "group_id": int(facts["agent_group"][k]),
        "vibe_id": _series(tracks["agent_glyph"][1:, k], int),
    }


def _places(x: Array, y: Array) -> Any:
    return _changes([[int(a), int(b)] for a, b in zip(x, y)])


def _held(items: Array) -> Any:
    """items: [steps, kinds of items]."""
    return _changes([[[i, count] for i, count in enumerate(row) if count] for row in items.tolist()])


def _series(values: Array, plain: Callable[[Any], Any]) -> Any:
    return _changes([plain(value) for value in values.tolist()])


def _changes(values: Sequence[Any]) -> Any:
    """Returns the value, if it never changes, or [[step, value], …] of its changes."""
    found = [[step, value] for step, value in enumerate(values) if step == 0 or value != values[step - 1]]
    return found[0][1] if len(found) == 1 else found
