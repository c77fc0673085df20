"""MuJoCo's window during training: on a display of its own where Xvfb is installed, and its messages where none is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("gymnasium")

from metta_fast.cli import main
from metta_fast.loggers import read_rows
from tests.tiny import QUIET, named

SIZES = ["env.num_envs=8", "trainer.batch_size=512", "trainer.update_epochs=1"]


def train(folder: Path, *words: str) -> int:
    shown = [*QUIET, "run.dashboard=plain", *named(folder)]
    return main(["train", *SIZES, *shown, "env.show_viewer=true", *words])


@pytest.fixture
def display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A display without a screen; the file that holds its pixels."""
    server = shutil.which("Xvfb")
    if server is None:
        pytest.skip("Xvfb is not installed")
    screen = tmp_path / "screen"
    screen.mkdir()
    read, write = os.pipe()
    command = [server, "-displayfd", str(write), "-screen", "0", "640x480x24", "-fbdir", str(screen)]
    process = subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with open(read) as number:
            monkeypatch.setenv("DISPLAY", f":{number.readline().strip()}")
        yield screen / "Xvfb_screen0"
    finally:
        process.terminate()
        process.wait(10)


def test_the_window_shows_the_robot_and_training_goes_on_without_it(
    display: Path, tmp_path: Path, capfd: Any
) -> None:
    pictures: list[bytes] = []

    def watch() -> None:
        """Wait for two pictures of a window, then close it as its process would end."""
        deadline = time.monotonic() + 60
        while len(pictures) < 2 and time.monotonic() < deadline:
            time.sleep(0.5)
            picture = display.read_bytes()[3232:]
            if len(set(picture[::97])) > 20 and picture not in pictures:
                pictures.append(picture)
        for child in psutil.Process().children():
            if any("viewer_child" in word for word in child.cmdline()):
                child.terminate()

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = train(tmp_path / "runs", "env=ant", "trainer.total_timesteps=25000")
    watcher.join()
    assert code == 0
    assert len(pictures) == 2, "the window shows a robot that moves"
    assert "the viewer is closed; training goes on" in capfd.readouterr().err
    assert list(read_rows(tmp_path / "runs/r/metrics.jsonl"))[-1]["train/steps"] >= 25000
    assert not any("viewer_child" in " ".join(child.cmdline()) for child in psutil.Process().children())


@pytest.mark.parametrize(
    ("variables", "words", "message"),
    [
        ({}, ["env=ant"], r"no display .*metta-fast replay"),
        ({"DISPLAY": ":4711"}, ["env=ant"], r"viewer does not open \(.*GLFW.*\)"),
        ({"DISPLAY": ":4711"}, ["env=ant", "vector.backend=workers"], "give vector.backend=threads"),
        ({"DISPLAY": ":4711"}, ["env=counter"], r"is for robots \(env.factory=robot\), this is counter"),
    ],
)
def test_what_stands_in_the_way_is_said_before_work_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
    variables: dict[str, str],
    words: list[str],
    message: str,
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert train(tmp_path, *words) == 2
    told = capfd.readouterr().err
    assert re.search(message, told)
    assert "Traceback" not in told
    assert not list(tmp_path.iterdir()), "the run's folder is taken away again"
