"""Draws pictures of robots in a separate process, with the first graphics library that works.

    with Renderer(factory.model.path) as renderer:
        frame = renderer.render(batch.physics(0))          # uint8 [height, width, 3]

    state ─► render_child.py (MUJOCO_GL=egl, else osmesa) ─► picture

A missing graphics library fails at import, and a broken one may crash or hang. Neither harms this process, which loads
none.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import weakref
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from metta_fast.contracts.closing import Closing
from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.child import end, read, start_child, why

LIBRARIES = ("egl", "osmesa")
"""Graphics libraries in the order tried; MUJOCO_GL, if set, comes first."""
CURE = (
    "install one of them: apt-get install libegl1 (with a driver: libegl-mesa0, or that of the GPU's maker) or "
    "apt-get install libosmesa6"
)
START_S, PICTURE_S = 60.0, 60.0
"""Seconds without a reply after which the process counts as hung."""
CHILD = Path(__file__).with_name("render_child.py")


class Renderer(Closing):
    """Draws states of one model.

    Args:
        model: path of the MJCF file.
        height, width: a picture's size in pixels.
        camera: a camera of the model; "": its camera "track" or "fixed", or else one that follows the robot.
        libraries: graphics libraries to try.

    Attributes:
        library: the graphics library in use.

    Raises:
        UserError: none works (the message has each one's reason and what to install), or no such camera.
    """

    def __init__(
        self,
        model: str,
        height: int = 360,
        width: int = 480,
        camera: str = "",
        *,
        libraries: tuple[str, ...] | None = None,
    ) -> None:
        self.shape = (height, width, 3)
        self._arguments = [model, str(height), str(width), camera]
        wanted = os.environ.get("MUJOCO_GL", "")
        tried = libraries or tuple(dict.fromkeys(name for name in (wanted, *LIBRARIES) if name))
        reasons = []
        for name in tried:
            self.library = name
            reason = self._start(name)
            if reason is None:
                return
            if camera and f'camera "{camera}"' in reason:
                raise UserError(f"{model}: there is no camera {camera!r} in this model")
            reasons.append(f"{name}: {reason}")
        raise UserError(f"robots cannot be drawn here ({'; '.join(reasons)}). {CURE[0].upper()}{CURE[1:]}")

    def render(self, physics: Array) -> Array:
        """Returns the picture of a state.

        Args:
            physics: float64 [n], MuJoCo's integration state (`RobotBatch.physics`).

        Returns:
            uint8 [height, width, 3].

        Raises:
            RuntimeError: the process that draws has ended or hangs.
        """
        try:
            self._process.stdin.write(np.ascontiguousarray(physics, np.float64).tobytes())
            self._process.stdin.flush()
            picture = read(self._process, int(np.prod(self.shape)), PICTURE_S)
        except OSError as error:
            raise RuntimeError(
                f"the process that draws robots ({self.library}) ended: {why(self._process, self._words)}"
            ) from error
        return np.frombuffer(picture, np.uint8).reshape(self.shape)

    def close(self) -> None:
        """Ends the process. May be called twice."""
        self._finalizer()

    def _start(self, library: str) -> str | None:
        """Starts the process with that library. Returns why it does not draw, or None."""
        with ExitStack() as unless_started:
            self._words = unless_started.enter_context(tempfile.TemporaryFile())
            self._process = start_child(
                CHILD,
                self._arguments,
                {"MUJOCO_GL": library, "PYOPENGL_PLATFORM": library},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
            )
            unless_started.pop_all()  # end closes it
        self._finalizer = weakref.finalize(self, end, self._process, self._words)
        try:
            if read(self._process, 6, START_S) == b"ready\n":
                return None
            reason = "its output is not pictures"
        except OSError:
            reason = why(self._process, self._words)
        except BaseException:  # a signal
            self.close()
            raise
        self.close()
        return reason
