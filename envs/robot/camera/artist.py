"""Has robots' pictures drawn in a process of its own.

    artist = Artist(Pictures("lift_cube.xml", ("wrist",), size=64), envs=8, state_size=60)
    artist.states[i] = …                     # MuJoCo's integration states, float64
    artist.looks[i] = …                      # arrays of the model that differ between environments, float32
    artist.draw()
    artist.pictures                          # uint8 [envs, cameras, size, size, channels]

A graphics library that is missing, broken or hangs harms only that process; why is in the error.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from metta_fast.contracts.closing import Closing
from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.child import end, read, start_child, why
from metta_fast.envs.robot.render import CURE, LIBRARIES

START_S, DRAW_S = 60.0, 60.0
"""Seconds without an answer after which the process counts as hung."""
CHILD = Path(__file__).with_name("camera_child.py")
CHANNELS = {"rgb": 3, "depth": 1, "rgbd": 4}
_works: list[str] = []
"""The graphics library that has drawn in this process's lifetime; later processes try no other."""


class Pictures(NamedTuple):
    """Says which pictures of a model are drawn."""

    model: str
    """Path of the MJCF file."""
    cameras: tuple[str, ...]
    """Names of cameras of the model."""
    size: int = 64
    """Height and width in pixels."""
    kind: str = "rgb"
    """One of CHANNELS."""
    far: float = 1.0
    """Metres that 255 stands for in a depth picture."""


class Artist(Closing):
    """Draws states of one model for several environments.

    Args:
        envs: number of environments.
        state_size: numbers in an integration state.
        looks: arrays of the model of which each environment has its own, with their lengths (looks.py).
        libraries: graphics libraries to try; None: the one that worked before, else MUJOCO_GL, EGL, OSMesa.

    Attributes:
        states: float64 [envs, state_size], to be written before `draw`.
        looks: float32 [envs, sum of lengths], likewise: the arrays of an environment one after the other.
        pictures: uint8 [envs, cameras, size, size, channels], written by `draw`.
        library: the graphics library in use.

    Raises:
        UserError: no graphics library works; the message has each one's reason and what to install.
    """

    _fresh: bool
    """The process has not said yet that it is ready."""

    def __init__(
        self,
        what: Pictures,
        envs: int,
        state_size: int,
        *,
        looks: Mapping[str, int] | None = None,
        libraries: tuple[str, ...] | None = None,
    ) -> None:
        shape = envs, len(what.cameras), what.size, what.size, CHANNELS[what.kind]
        own = dict(looks or {})
        bytes_of_states, bytes_of_looks = 8 * envs * state_size, 4 * envs * sum(own.values())
        number = os.memfd_create("metta_fast_pictures")
        try:
            os.ftruncate(number, bytes_of_states + bytes_of_looks + int(np.prod(shape)))
            memory = mmap.mmap(number, 0)
            self.states = np.frombuffer(memory, np.float64, envs * state_size).reshape(envs, state_size)
            self.looks = np.frombuffer(memory, np.float32, envs * sum(own.values()), bytes_of_states).reshape(
                envs, -1
            )
            self.pictures = np.frombuffer(memory, np.uint8, offset=bytes_of_states + bytes_of_looks).reshape(
                shape
            )
            job = what._asdict() | {"envs": envs, "memory": number, "state": state_size, "looks": own}
            self._begin(json.dumps(job), number, libraries)
        finally:
            os.close(number)

    def draw(self) -> None:
        """Draws the pictures of all states.

        Raises:
            RuntimeError: the process that draws has ended or hangs.
        """
        self.ask()
        self.finish()

    def ask(self) -> None:
        """Has the process draw all states; `finish` waits for it."""
        if self._fresh:
            self._wait(b"ready\n", START_S)
            self._fresh = False
        try:
            self._process.stdin.write(b"d")
        except OSError as error:
            raise self._ended() from error

    def finish(self) -> None:
        """Waits until all states are drawn."""
        self._wait(b"k", DRAW_S)

    def close(self) -> None:
        """Ends the process. May be called twice."""
        self._finalizer()

    # ---- the process ----

    def _begin(self, job: str, number: int, libraries: tuple[str, ...] | None) -> None:
        """Starts the process. If no library has drawn yet, waits whether it can."""
        if libraries is None and _works:
            self._start(job, number, _works[0])
            self._fresh = True
            return
        wanted = os.environ.get("MUJOCO_GL", "")
        reasons = []
        for name in libraries or tuple(dict.fromkeys(name for name in (wanted, *LIBRARIES) if name)):
            self._start(job, number, name)
            try:
                self._read(b"ready\n", START_S)
            except OSError:
                reasons.append(f"{name}: {why(self._process, self._words)}")
                self.close()
                continue
            except BaseException:  # a signal
                self.close()
                raise
            self._fresh = False
            _works[:] = [name]
            return
        raise UserError(
            f"env.image.cameras: pictures cannot be drawn here ({'; '.join(reasons)}). {CURE[0].upper()}{CURE[1:]}"
        )

    def _start(self, job: str, number: int, library: str) -> None:
        self.library = library
        with ExitStack() as unless_started:
            self._words = unless_started.enter_context(tempfile.TemporaryFile())
            self._process = start_child(
                CHILD,
                [job],
                {"MUJOCO_GL": library, "PYOPENGL_PLATFORM": library},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                pass_fds=[number],
                bufsize=0,
            )
            unless_started.pop_all()  # end closes it
        self._finalizer = weakref.finalize(self, end, self._process, self._words)

    def _wait(self, words: bytes, patience_s: float) -> None:
        try:
            self._read(words, patience_s)
        except OSError as error:
            raise self._ended() from error

    def _ended(self) -> RuntimeError:
        return RuntimeError(
            f"the process that draws pictures ({self.library}) ended: {why(self._process, self._words)}"
        )

    def _read(self, words: bytes, patience_s: float) -> None:
        """Reads these bytes from the process. Raises OSError if others come, or none."""
        if (found := read(self._process, len(words), patience_s)) != words:
            raise OSError(f"its output is {found!r}")
