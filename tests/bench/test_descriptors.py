"""Tests that what was opened for a child process is closed if the process cannot be started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def side() -> Any:
    from metta_fast.bench.training.side import Side

    return Side("x", [])


def child() -> Any:
    from metta_fast.bench.harness.child_handle import Child

    return Child("x")


def renderer() -> Any:
    from metta_fast.envs.robot.render import Renderer

    return Renderer("x", libraries=("egl",))


def viewer() -> Any:
    from metta_fast.envs.robot.viewer import Viewer

    return Viewer("x")


def opened() -> list[str]:
    """What this process has open, beside the folder that is read for it."""
    fds = Path("/proc/self/fd")
    return sorted(
        os.readlink(fd) for fd in fds.iterdir() if fd.is_symlink() and "/proc/" not in os.readlink(fd)
    )


@pytest.mark.parametrize("make", [side, child, renderer, viewer])
def test_a_process_that_cannot_be_started_leaves_no_descriptor(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(*_: Any, **__: Any) -> NoReturn:
        raise BlockingIOError("no more processes")

    if make in (renderer, viewer):
        pytest.importorskip("mujoco")
        monkeypatch.setattr("metta_fast.envs.robot.viewer.check_display", lambda: None)
    before = opened()
    monkeypatch.setattr(subprocess, "Popen", no_process)
    with pytest.raises(BlockingIOError) as caught:
        make()
    assert opened() == before  # though the error's frames are alive
    assert caught.tb is not None
