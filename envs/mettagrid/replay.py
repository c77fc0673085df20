"""Records MettaGrid's episodes: pictures for the page, and the replay of the package's own writer for its viewer.

recorder = MettaGridRecorder(batch.games[0]);  recorder.see();  …;  recorder.world().mettascope
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.contracts.recording import World
from metta_fast.envs.frame_recorder import FrameRecorder

if TYPE_CHECKING:
    from metta_fast.envs.mettagrid.game import Game

PIXELS = 640
"""About the longer side of a picture."""
CELL = (4, 20)
"""Pixels of a cell, at least and at most."""
FLOOR, WALL = (24, 26, 31), (92, 96, 105)
THINGS = (
    (214, 158, 46),
    (66, 153, 225),
    (229, 62, 62),
    (159, 122, 234),
    (72, 187, 120),
    (237, 137, 54),
    (56, 178, 172),
)
"""Colours of kinds of objects, in order of their names."""
AGENTS = (
    (255, 255, 255),
    (255, 214, 102),
    (144, 205, 244),
    (154, 230, 180),
    (254, 178, 178),
    (214, 188, 250),
)


class MettaGridRecorder(FrameRecorder):
    """Watches the episode of one environment that has just been reset."""

    def __init__(self, game: Game) -> None:
        from mettagrid.simulator.replay_log_writer import EpisodeReplay

        simulation: Any = game.simulation
        super().__init__(partial(picture, simulation))
        self._simulation, self._buffers = simulation, game.buffers
        self._replay = EpisodeReplay(simulation)
        self._whole = True
        """No step was missed, as those of env.action_repeat are."""

    def see(self) -> None:
        super().see()
        step = self._simulation.current_step
        self._whole &= step in (0, self._replay.step + 1)
        if step and self._whole:  # the package's replays begin after the first action
            self._replay.log_step(step, self._buffers.actions, self._buffers.rewards)

    def world(self) -> World:
        found = super().world()
        if self._whole:
            found.mettascope = self._replay.get_replay_data()
        return found


def picture(simulation: Any) -> Array:
    """Returns the map as uint8 [height, width, 3]: objects are squares, agents smaller ones on the floor."""
    height, width = simulation.map_height, simulation.map_width
    size = min(max(PIXELS // max(height, width), CELL[0]), CELL[1])
    frame = np.full((height * size, width * size, 3), FLOOR, np.uint8)
    kinds = sorted(name for name in simulation.object_type_names if name not in ("", "agent", "wall"))
    colors = {name: THINGS[i % len(THINGS)] for i, name in enumerate(kinds)}
    for thing in simulation.grid_objects().values():
        _draw(frame, thing, size, colors)
    return frame


def _draw(
    frame: Array, thing: Mapping[str, Any], size: int, colors: Mapping[str, tuple[int, int, int]]
) -> None:
    x, y = (int(place) * size for place in thing["location"][:2])
    agent = thing.get("agent_id")
    if agent is None:
        frame[y : y + size, x : x + size] = colors.get(thing["type_name"], WALL)
    else:
        edge = max(size // 5, 1)
        frame[y + edge : y + size - edge, x + edge : x + size - edge] = AGENTS[agent % len(AGENTS)]
