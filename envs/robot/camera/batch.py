"""Steps robots and has them drawn: `CameraBatch`, an EnvBatch (metta_fast/contracts/env.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metta_fast.contracts.env import Array, EnvError, Rows
from metta_fast.envs.robot._robot import RobotBatch, RobotModel
from metta_fast.envs.robot.camera.artist import Artist, Pictures
from metta_fast.envs.robot.looks import looks


class CameraBatch:
    """Steps the robots of `inner` and writes pictures into their rows.

    Args:
        inner: RobotBatch. envs: its environments.
        what: the pictures.
        leaves: names of the observation's leaves with pictures, one for each camera.
        places: int32 [joints]: places in qpos that the leaf `joints` has; None: there is no such leaf.
        model: the robots'. own: its arrays, float32 [n], of which each episode has its own (looks.py).
    """

    def __init__(
        self,
        inner: RobotBatch,
        envs: int,
        what: Pictures,
        leaves: tuple[str, ...],
        places: Array | None,
        model: RobotModel,
        own: Mapping[str, Array],
    ) -> None:
        self.inner, self._leaves = inner, leaves
        self._places = np.zeros(0, np.int32) if places is None else places
        self._joints = None if places is None else np.zeros((envs, len(places)), np.float32)
        self._none = np.zeros((envs, 0), np.float32)
        lengths = {name: len(base) for name, base in own.items()}
        self.artist = Artist(what, envs, len(inner.physics(0)), looks=lengths)
        if lengths:
            self._show(model, own)

    def bind(self, rows: Rows) -> None:
        """Takes the rows; the inner batch writes its own leaves there."""
        self.inner.bind(rows)
        self._pictures = [rows.obs[name] for name in self._leaves]
        self._joints_row = None if self._joints is None else rows.obs["joints"]

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        self.inner.reset(seed, stagger=stagger)
        self._look()

    def step(self) -> None:
        self.inner.step()
        self._look()

    def native_job(self) -> None:
        return None

    def notes(self) -> dict[str, str]:
        """Returns the inner batch's messages."""
        found: dict[str, str] = self.inner.notes()
        return found

    def physics(self, env: int) -> Array:
        """Returns MuJoCo's integration state of one environment, float64 [n]."""
        state: Array = self.inner.physics(env)
        return state

    def state_dict(self) -> dict[str, Any]:
        """Returns the robots' state; pictures follow from it."""
        state: dict[str, Any] = self.inner.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)

    def close(self) -> None:
        """Ends the process that draws. May be called twice."""
        self.artist.close()

    def _show(self, model: RobotModel, own: Mapping[str, Array]) -> None:
        """Has episodes' looks written where the process that draws reads them."""
        rows, matid = self.artist.looks, model.matid
        outs, place = {}, rows.ctypes.data
        for name, base in own.items():
            outs[name] = place, rows.shape[1]
            place += base.nbytes
        bases = {name: base.ctypes.data for name, base in own.items()}
        self.inner.show(looks(bases, outs, matid.ctypes.data, model.look_counts), (rows, matid, dict(own)))

    def _look(self) -> None:
        joints = self._none if self._joints is None else self._joints
        self.inner.look(self.artist.states, joints, self._places)
        try:
            self.artist.draw()
        except RuntimeError as error:
            raise EnvError(str(error)) from error
        for camera, row in enumerate(self._pictures):
            np.copyto(row, self.artist.pictures[:, camera])
        if self._joints_row is not None:
            np.copyto(self._joints_row, joints)
