"""Draws robots that step on a GPU by MuJoCo's OpenGL, on the CPU's cores: `OpenGLRows` (env.renderer=sequential).

    places in qpos ─► host ─► processes that draw, one for each core, side by side ─► pictures ─► row t+1 on the GPU

Works with any graphics library that camera_child.py does, whatever the GPU. A row waits for its pictures, so a rollout
is not captured as one graph.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts.env import Array
from metta_fast.envs.robot.camera.artist import Artist, Pictures
from metta_fast.envs.robot.looks import NAMES
from metta_fast.envs.robot.warp.draw.rows import PictureRows

if TYPE_CHECKING:
    from metta_fast.envs.robot.warp.physics import Physics


class OpenGLRows(PictureRows):
    """Has the worlds of `physics` drawn by processes.

    Args:
        what: the pictures. leaves: the leaf of each camera. places: as PictureRows'.
        processes: at most so many.

    Raises:
        UserError: no graphics library works here.
    """

    def __init__(
        self, physics: Physics, what: Pictures, leaves: tuple[str, ...], places: Array | None, processes: int
    ) -> None:
        super().__init__(physics, leaves, places)
        self._own = [tensor for name, tensor in physics.own.items() if name in NAMES]
        looks = {name: tensor[0].numel() for name, tensor in physics.own.items() if name in NAMES}
        rest, self._first = _state(physics.mjm)
        worlds, count = physics.num_envs, min(processes, physics.num_envs)
        ends = [worlds * i // count for i in range(count + 1)]
        self._parts = [slice(low, high) for low, high in pairwise(ends)]
        self._artists: list[Artist] = []
        try:
            for part in self._parts:
                self._artists.append(Artist(what, part.stop - part.start, len(rest), looks=looks))
                self._artists[-1].states[:] = rest
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the processes. May be called twice."""
        for artist in self._artists:
            artist.close()

    def _drawing(self, rows: list[Tensor]) -> Callable[[], None]:
        def draw() -> None:
            self._tell()
            for artist in self._artists:
                artist.ask()
            for part, artist in zip(self._parts, self._artists):
                artist.finish()
                for camera, row in enumerate(rows):
                    row[part].copy_(torch.from_numpy(artist.pictures[:, camera]))

        return draw

    def _tell(self) -> None:
        """Writes where everything is, and how it looks, to where the processes read it. A world that has become
        unstable stays as it was."""
        qpos = self._physics.arrays["qpos"].cpu().numpy()
        looks = torch.cat([own.flatten(1) for own in self._own], 1).cpu().numpy() if self._own else None
        width = qpos.shape[1]
        for part, artist in zip(self._parts, self._artists):
            now = qpos[part]
            good = np.isfinite(now).all(1)
            artist.states[good, self._first : self._first + width] = now[good]
            if looks is not None:
                artist.looks[:] = looks[part]


def _state(mjm: object) -> tuple[Array, int]:
    """Returns MuJoCo's integration state at rest, float64 [n], and the place of qpos in it."""
    import mujoco

    data = mujoco.MjData(mjm)
    size = mujoco.mj_stateSize(mjm, mujoco.mjtState.mjSTATE_INTEGRATION)
    state = np.zeros(size)
    mujoco.mj_getState(mjm, data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    return state, mujoco.mj_stateSize(mjm, mujoco.mjtState.mjSTATE_TIME)
