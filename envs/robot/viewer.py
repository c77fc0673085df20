"""Opens MuJoCo's own window on a robot while it trains: `env.show_viewer=true`.

    viewer = factory.viewer()                         # RobotViewer (contracts/env_answers.py: Viewer)
    viewer.check()                                    # before work starts
    window = viewer.open(vec)                         # in a process of its own

    vector ─ block 0 was received ─► show, 30 times a second ─► viewer_child.py ─► mujoco.viewer

Training does not wait for the window: states that the window cannot take are dropped. Its graphics library is not
loaded here. When the window is closed, training continues.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from metta_fast.contracts.env import Array
from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.child import last_line, start_child

LOG = logging.getLogger("metta_fast.robot")
EVERY_S = 1 / 30
START_S = 60.0
"""Seconds after which a window that has not opened counts as failed."""
CHILD = Path(__file__).with_name("viewer_child.py")
CURE = "leave env.show_viewer out; `metta-fast replay RUN` shows an episode without a display"


def check_display() -> None:
    """Raises UserError if there is no display for the window."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise UserError(
            "env.show_viewer=true: there is no display (DISPLAY and WAYLAND_DISPLAY are not set): start it from "
            f"a desktop, or through ssh -X; or {CURE}"
        )


class RobotViewer:
    """Opens windows on a robot's model.

    Args:
        model: path of the MJCF file.
    """

    def __init__(self, model: str) -> None:
        self._model = model

    def check(self) -> None:
        """Raises UserError if there is no display for the window."""
        check_display()

    def open(self, vec: Any) -> Viewer:
        """Opens a window on the first robot of `vec`, a vector of this process (vector/base.py)."""
        viewer = Viewer(self._model)
        vec.watchers.append(lambda: viewer.show(lambda: vec.batches[0].physics(0)))
        return viewer


class Viewer:
    """Shows a model's states in a window.

    Args:
        model: path of the MJCF file.

    Raises:
        UserError: there is no display, or the window cannot be opened.
    """

    def __init__(self, model: str) -> None:
        check_display()
        with ExitStack() as unless_started:
            self._states, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            unless_started.enter_context(self._states)
            with theirs:
                words = unless_started.enter_context(tempfile.TemporaryFile())
                self._process = start_child(
                    CHILD,
                    [model, str(theirs.fileno())],
                    {"MUJOCO_GL": "glfw"},
                    stdin=subprocess.DEVNULL,
                    stdout=words,
                    stderr=words,
                    pass_fds=[theirs.fileno()],
                )
            unless_started.pop_all()  # _end closes them
        self._finalizer = weakref.finalize(self, _end, self._process, self._states, words)
        self._states.settimeout(START_S)
        try:
            opened = self._states.recv(16) == b"ready"
        except TimeoutError:
            opened = False
        if not opened:
            self._process.kill()
            self._process.wait()
            why = last_line(words) or f"nothing within {START_S:g} s"
            self.close()
            raise UserError(f"env.show_viewer=true: MuJoCo's viewer does not open ({why}): {CURE}")
        self._states.setblocking(False)
        self._shown = 0.0

    def show(self, state: Callable[[], Array]) -> None:
        """Shows a state (`RobotBatch.physics`) if the next one is due."""
        now = time.monotonic()
        if now - self._shown < EVERY_S or not self._finalizer.alive:
            return
        self._shown = now
        try:
            self._states.send(state().tobytes())
        except BlockingIOError:
            return
        except OSError:
            LOG.info("the viewer is closed; training continues")
            self.close()

    def close(self) -> None:
        """Closes the window. May be called twice."""
        self._finalizer()


def _end(process: Any, states: socket.socket, words: Any) -> None:
    states.close()
    process.kill()
    process.wait()
    words.close()
