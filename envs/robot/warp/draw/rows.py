"""Writes what cameras see into rows of the buffers: `PictureRows`.

looks = PictureRows(physics, seen)
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


class Seen(NamedTuple):
    """Says what is observed beside a robot's own leaves."""

    spec: EnvSpec
    """The robot's, with the leaves below."""
    drawn: Drawn
    leaves: tuple[str, ...]
    """The leaf of each camera's pictures."""
    places: Array | None
    """int32 [joints]: places in qpos that the leaf `joints` has; None: there is no such leaf."""


class PictureRows:
    """Draws the worlds of `physics` and writes their leaves."""

    def __init__(self, physics: Physics, seen: Seen) -> None:
        self._physics, self._seen = physics, seen
        places = seen.places
        self._places = None if places is None else torch.from_numpy(places.astype("i8")).to(physics.device)

    def at(self, b: DeviceRows, t: int) -> Callable[[], None]:
        """Returns what writes row t+1."""
        import warp

        pixels = self._seen.drawn.size**2
        rows = [
            warp.from_torch(leaf.view(leaf.shape[0], pixels, leaf.shape[-1]), dtype=warp.uint8)
            for leaf in (b.obs[name][t + 1] for name in self._seen.leaves)
        ]
        places = self._places

        def look() -> None:
            self._physics.draw()
            self._physics.write(rows)
            if places is not None:
                self._copy_joints(places, b.obs["joints"][t], b.obs["joints"][t + 1])

        return look

    def _copy_joints(self, places: Tensor, last: Tensor, row: Tensor) -> None:
        """Copies the joints' positions; of a world that has become unstable, the row's before, as for its other
        numbers (world.h)."""
        now = self._physics.arrays["qpos"].index_select(1, places)
        row.copy_(torch.where(torch.isfinite(now).all(1, keepdim=True), now, last))
