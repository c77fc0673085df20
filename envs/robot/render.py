"""Draws pictures of robots in a separate process, with the first graphics library that works.

    with Renderer(factory.model.path) as renderer:
        frame = renderer.render(batch.physics(0))          # uint8 [height, width, 3]

    state ─► render_child.py (MUJOCO_GL=egl, else osmesa) ─► picture

A missing graphics library fails at import, and a broken one may crash or hang. Neither harms this process, which loads
none.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from metta_fast.contracts.closing import Closing
from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.child import last_line, start_child

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
            picture = self._read(int(np.prod(self.shape)), PICTURE_S)
        except OSError as error:
            raise RuntimeError(
                f"the process that draws robots ({self.library}) ended: {self._why()}"
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
            unless_started.pop_all()  # _end closes it
        self._finalizer = weakref.finalize(self, _end, self._process, self._words)
        try:
            if self._read(6, START_S) == b"ready\n":
                return None
            reason = "its output is not pictures"
        except OSError:
            reason = self._why()
        except BaseException:  # a signal
            self.close()
            raise
        self.close()
        return reason

    def _read(self, size: int, patience_s: float) -> bytes:
        """Reads exactly this many bytes from the process. Raises OSError if it ends before."""
        found = bytearray()
        deadline = time.monotonic() + patience_s
        while len(found) < size:
            pipe = self._process.stdout
            if not select.select([pipe], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise TimeoutError
            part = os.read(pipe.fileno(), size - len(found))
            if not part:
                raise BrokenPipeError
            found += part
        return bytes(found)

    def _why(self) -> str:
        """Returns the last line that the process wrote, or how it ended."""
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it hangs"
        return last_line(self._words) or f"it ended with code {code} without a message"


def _end(process: Any, words: Any) -> None:
    process.kill()
    process.wait()
    process.stdout.close()
    words.close()
    with suppress(BrokenPipeError):  # a state that it had not read
        process.stdin.close()
