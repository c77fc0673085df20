"""Makes robots that observe pictures: `CameraFactory`.

    factory = CameraFactory(RobotFactory("lift_cube"), ("wrist",), size=64)
    factory.spec.obs                              # image [64, 64, 3] uint8, obs [40] float32

With state="critic" the task's own observation is for the critic alone, and the actor sees pictures and `joints`, the
positions of all hinges and slides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.env import Array, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.camera.artist import CHANNELS, Pictures
from metta_fast.envs.robot.camera.batch import CameraBatch
from metta_fast.envs.robot.env import RobotFactory
from metta_fast.envs.robot.looks import look_names
from metta_fast.envs.robot.warp.draw.context import Drawn
from metta_fast.machine.hardware import allowed_cores

if TYPE_CHECKING:
    import torch

    from metta_fast.contracts.device_vector import DeviceVector
    from metta_fast.envs.frame_recorder import FrameRecorder
    from metta_fast.envs.robot.viewer import RobotViewer
    from metta_fast.envs.robot.warp.physics import Physics

PROCESS_BYTES = 150 << 20
"""Of a process that draws, with Python, MuJoCo and a graphics library on the CPU (151 MB were measured)."""
READERS = ("actor", "critic")
RENDERERS = ("auto", "batch", "sequential")


def beside(image: Array, pictures: Array) -> Array:
    """Returns an image of the robot with pictures of its cameras at its right, one above the other, enlarged.

    Args:
        image: uint8 [height, width, 3]. pictures: uint8 [cameras, size, size, 1, 3 or 4]; of 4 channels the colours.
    """
    height, each = len(image), len(image) // len(pictures)
    factor = max(1, each // pictures.shape[1])
    shown = pictures[..., :3] if pictures.shape[-1] > 1 else pictures.repeat(3, -1)
    large = shown.repeat(factor, 1).repeat(factor, 2)
    column = np.zeros((max(height, len(pictures) * large.shape[1]), large.shape[2], 3), np.uint8)
    for i, picture in enumerate(large):
        column[i * len(picture) : (i + 1) * len(picture)] = picture
    out = np.zeros((len(column), image.shape[1] + column.shape[1], 3), np.uint8)
    out[:height, : image.shape[1]] = image
    out[:, image.shape[1] :] = column
    return out


class CameraFactory:
    """Makes batches of robots with pictures in their rows (`metta_fast.contracts.env.EnvFactory`).

    Args:
        robot: makes the robots.
        cameras: names of cameras of the model.
        size: height and width of a picture in pixels.
        kind: rgb [size, size, 3], depth [size, size, 1] or rgbd [size, size, 4], all uint8.
        far: metres along the view that 255 of a depth stands for; what is further is 255 too.
        state: who reads the task's own observation: actor, or critic (the critic alone).
        renderer: which draws in training: batch (MuJoCo Warp's, on the GPU), sequential (MuJoCo's OpenGL), or auto
            (that of the device). Batches on the CPU, as in evaluation, are always drawn by MuJoCo's OpenGL.

    Raises:
        UserError: a camera that the model has not, or no camera.
    """

    def __init__(
        self,
        robot: RobotFactory,
        cameras: tuple[str, ...],
        *,
        size: int = 64,
        kind: str = "rgb",
        far: float = 1.0,
        state: str = "actor",
        renderer: str = "auto",
    ) -> None:
        self.robot, self.cameras, self.state = robot, tuple(cameras), state
        known = robot.model.cameras
        for name in self.cameras:
            if name not in known:
                there = f"it has {', '.join(known)}" if known else "it has none"
                raise UserError(
                    f"env.image.cameras: {robot.model.path} has no camera {name!r}; {did_you_mean(name, known)}{there}"
                )
        if not self.cameras or len({*self.cameras}) < len(self.cameras):
            raise UserError(f"env.image.cameras={list(self.cameras)}: expected names of different cameras")
        if renderer not in RENDERERS:
            raise UserError(f"env.renderer={renderer!r}: expected {', '.join(RENDERERS)}")
        self.renderer = renderer
        if kind == "depth" and robot.randomize.of_colours():
            raise UserError(
                f"{robot.randomize.of_colours()[0]}: a depth has no colours; leave it out, or give env.image.kind=rgbd"
            )
        if state not in READERS:
            raise UserError(f"env.image.state={state!r}: expected {' or '.join(READERS)}")
        self.what = Pictures(robot.model.path, self.cameras, size, kind, far)
        one = len(self.cameras) == 1
        self.leaves = ("image",) if one else tuple(f"image_{name}" for name in self.cameras)
        self.places = robot.model.joint_places if state == "critic" else None
        picture = Leaf((size, size, CHANNELS[kind]), "uint8", kind="image", channel_axis=2)
        obs = dict(robot.spec.obs) | dict.fromkeys(self.leaves, picture)
        if self.places is not None:
            obs["joints"] = Leaf((len(self.places),), "float32")
        hidden = (*robot.spec.privileged, *(("obs",) if state == "critic" else ()))
        self.spec = replace(
            robot.spec,
            obs=dict(sorted(obs.items())),
            privileged=tuple(sorted(hidden)),
            native=False,
            releases_gil=True,
            batch_bytes=PROCESS_BYTES,
            device_host_bytes=PROCESS_BYTES * allowed_cores() if renderer == "sequential" else 0,
        )

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> CameraBatch:
        """Makes the environments with global ids first_env … first_env+num_envs-1 of total_envs.

        Raises:
            UserError: no graphics library works here.
        """
        inner = self.robot.make_batch(first_env, num_envs, total_envs)
        own = {name: self.robot.model.look(name) for name in look_names(self.robot.random)}
        own = {name: base for name, base in own.items() if base.size}
        return CameraBatch(inner, num_envs, self.what, self.leaves, self.places, self.robot.model, own)

    def make_device_vector(
        self, num_envs: int, device: torch.device, first_env: int, total_envs: int
    ) -> DeviceVector:
        """Makes the environments on `device` with MuJoCo Warp, drawn by its batched renderer, or with
        renderer="sequential" by MuJoCo's OpenGL.

        Raises:
            UserError: see `gpu_obstacle`, MuJoCo Warp does not support the model, or no graphics library works.
        """
        if found := self.gpu_obstacle():
            raise UserError("env.device=cuda: " + "; ".join(found))
        from metta_fast.envs.robot.camera.device_rows import OpenGLRows
        from metta_fast.envs.robot.warp.draw.rows import PictureRows, Seen, WarpRows
        from metta_fast.envs.robot.warp.vector import WarpVector

        def rows(physics: Physics) -> PictureRows:
            if self.renderer == "sequential":
                return OpenGLRows(physics, self.what, self.leaves, self.places, allowed_cores())
            return WarpRows(physics, self.leaves, self.places)

        return WarpVector(
            self.robot, num_envs, device, first_env, total_envs, Seen(self.spec, self._drawn(), rows)
        )

    def _drawn(self) -> Drawn | None:
        what = self.what
        if self.renderer == "sequential":
            return None
        return Drawn(what.cameras, what.size, what.kind, what.far)

    def gpu_obstacle(self) -> tuple[str, str] | None:
        """Returns why these robots cannot step on a GPU, with the cure; None if they can."""
        return self.robot.gpu_obstacle()

    def gpu_bytes(self) -> tuple[int, int]:
        """Returns the bytes on the GPU of any number of these robots, and of each, by an estimate."""
        from metta_fast.envs.robot.warp.how import how_of, with_room
        from metta_fast.envs.robot.warp.memory import bytes_of

        return bytes_of(with_room(how_of(self.robot, self._drawn(), looks=True)))

    def gpu_only_if_asked(self) -> str:
        """Returns why env.device=auto leaves robots on the CPU."""
        return self.robot.gpu_only_if_asked()

    def has_gpu_states(self) -> bool:
        """Returns whether states of robots on the GPU are of another form than those on the CPU."""
        return self.robot.has_gpu_states()

    def gpu_keys(self) -> tuple[str, ...]:
        """Returns keys that were given and have an effect with env.device=cuda only."""
        return (*(("env.renderer",) if self.renderer == "batch" else ()), *self.robot.gpu_keys())

    def differences(self) -> list[str]:
        """Returns how robots differ from their model, in words, a line for each range."""
        return self.robot.differences()

    def make_recorder(self, batch: CameraBatch) -> FrameRecorder:
        """Returns a recorder of the batch's first robot, with what its cameras see beside it."""
        recorder = self.robot.make_recorder(batch.inner)
        return recorder.extended(lambda image: beside(image, batch.artist.pictures[0]))

    def viewer(self) -> RobotViewer:
        """Returns MuJoCo's own viewer."""
        return self.robot.viewer()
