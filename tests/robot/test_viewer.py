"""Tests MuJoCo's window during training: on its own display if Xvfb is installed, and its messages without one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("mujoco")
pytest.importorskip("gymnasium")

import metta_fast
from metta_fast.cli import main
from metta_fast.metrics.loggers import read_rows
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.run.callbacks import Callbacks
from metta_fast.run.trainer import Trainer
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
    class Watch(metta_fast.Callback):
        """Waits for two pictures of a window, closes it as its process would end, and stops three epochs later.

        Without a picture it stops after a minute.
        """

        def __init__(self) -> None:
            self.pictures: list[bytes] = []
            self.closed_at = 0
            self.deadline = time.monotonic() + 60

        def on_epoch(self, trainer: Any, metrics: Any) -> None:
            if self.closed_at or time.monotonic() > self.deadline:
                if trainer.epoch >= self.closed_at + 3:
                    trainer.stop()
                return
            picture = display.read_bytes()[3232:]
            if len(set(picture[::97])) > 20 and picture not in self.pictures:
                self.pictures.append(picture)
            if len(self.pictures) == 2:
                for child in psutil.Process().children():
                    if any("viewer_child" in word for word in child.cmdline()):
                        child.terminate()
                        child.wait(10)
                self.closed_at = trainer.epoch

    watch = Watch()
    words = [
        *SIZES,
        *QUIET,
        "run.dashboard=plain",
        *named(tmp_path / "runs"),
        "env.show_viewer=true",
        "env=ant",
    ]
    resolved = resolve(compose(words))
    assert Trainer(resolved, callbacks=Callbacks([watch])).run() == 0
    assert watch.closed_at, f"{len(watch.pictures)} pictures: the window shows a robot that moves"
    assert "the viewer is closed; training continues" in capfd.readouterr().err
    rows = list(read_rows(tmp_path / "runs/r/metrics.jsonl"))
    assert rows[-1]["train/epoch"] == watch.closed_at + 3
    assert not any("viewer_child" in " ".join(child.cmdline()) for child in psutil.Process().children())


@pytest.mark.parametrize(
    ("variables", "words", "message"),
    [
        ({}, ["env=ant"], r"no display .*metta-fast replay"),
        ({"DISPLAY": ":4711"}, ["env=ant"], r"viewer does not open \(.*GLFW.*\)"),
        ({"DISPLAY": ":4711"}, ["env=ant", "vector.backend=workers"], "give vector.backend=threads"),
        ({"DISPLAY": ":4711"}, ["env=counter"], "such as robots; counter has none"),
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
