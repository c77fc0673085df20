"""Writes what cameras see into rows of the buffers: `PictureRows`, and `WarpRows` by MuJoCo Warp's renderer.

looks = seen.rows(physics)
look = looks.at(buffers, t)
look()                                # after physics.forward: row t+1 has the pictures of the worlds as they are
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from metta_fast.contracts.device_vector import DeviceRows
from metta_fast.contracts.env import Array, EnvSpec
from metta_fast.envs.robot.warp.draw.context import Drawn

if TYPE_CHECKING:
    from metta_fast.envs.robot.warp.physics import Physics


class PictureRows:
    """Writes the leaves with pictures, and the joints' positions.

    Args:
        leaves: the leaf of each camera's pictures.
        places: int32 [joints]: places in qpos that the leaf `joints` has; None: there is no such leaf.
    """

    def __init__(self, physics: Physics, leaves: tuple[str, ...], places: Array | None) -> None:
        self._physics, self._leaves = physics, leaves
        self._places = None if places is None else torch.from_numpy(places.astype("i8")).to(physics.device)

    def at(self, b: DeviceRows, t: int) -> Callable[[], None]:
        """Returns what writes row t+1."""
        draw = self._drawing([b.obs[name][t + 1] for name in self._leaves])
        places = self._places

        def look() -> None:
            draw()
            if places is not None:
                self._copy_joints(places, b.obs["joints"][t], b.obs["joints"][t + 1])

        return look

    def close(self) -> None:
        """Frees what draws; the base class has nothing."""

    def _drawing(self, rows: list[Tensor]) -> Callable[[], None]:
        """Returns what draws into rows, uint8 [num_envs, size, size, channels] each."""
        raise NotImplementedError

    def _copy_joints(self, places: Tensor, last: Tensor, row: Tensor) -> None:
        """Copies the joints' positions; of a world that has become unstable, the row's before, as for its other
        numbers (world.h)."""
        now = self._physics.arrays["qpos"].index_select(1, places)
        row.copy_(torch.where(torch.isfinite(now).all(1, keepdim=True), now, last))


class WarpRows(PictureRows):
    """Draws with MuJoCo Warp, in the graph of the rollout."""

    def _drawing(self, rows: list[Tensor]) -> Callable[[], None]:
        import warp

        arrays = [
            warp.from_torch(row.view(row.shape[0], -1, row.shape[-1]), dtype=warp.uint8) for row in rows
        ]

        def draw() -> None:
            self._physics.draw()
            self._physics.write(arrays)

        return draw


class Seen(NamedTuple):
    """Says what is observed beside a robot's own leaves."""

    spec: EnvSpec
    """The robot's, with the leaves of pictures."""
    drawn: Drawn | None
    """What MuJoCo Warp draws; None: something else does."""
    rows: Callable[[Physics], PictureRows]
    """Makes what writes the leaves."""
