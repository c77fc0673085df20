"""Tests that os._exit in a user's code does not end the trainer's process without a word."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from metta_fast.contracts.interrupt import end_process, no_silent_exit

ENV = """
import os, gymnasium
class Exits(gymnasium.Wrapper):
    def __init__(self, env, where):
        super().__init__(env)
        self.where = where
        self.at("init")
    def at(self, where):
        if where == self.where:
            os._exit(0)
    def reset(self, **keys):
        self.at("reset")
        return super().reset(**keys)
    def step(self, action):
        self.at("step")
        return super().step(action)
def make(config):
    if config.params["where"] == "make":
        os._exit(0)
    return lambda index: Exits(gymnasium.make("CartPole-v1"), config.params["where"])
"""


def test_it_raises_and_is_put_back() -> None:
    assert os._exit is end_process
    with no_silent_exit():
        with no_silent_exit(), pytest.raises(SystemExit, match=r"os\._exit\(3\) was called"):
            os._exit(3)
        with pytest.raises(SystemExit):
            os._exit(0)
    assert os._exit is end_process


def test_it_raises_in_any_thread() -> None:
    seen: list[object] = []

    def work() -> None:
        try:
            os._exit(4)
        except SystemExit as error:
            seen.append(error.code)

    with no_silent_exit():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert seen == ["os._exit(4) was called"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_ends() -> None:
    with no_silent_exit():
        child = os.fork()
        if child == 0:
            try:
                os._exit(7)
            finally:
                end_process(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("where", ["import", "make", "init", "reset", "step"])
@pytest.mark.parametrize("backend", ["workers", "serial"])
def test_training_names_who_ends_the_process(tmp_path: Path, where: str, backend: str) -> None:
    (tmp_path / "mine.py").write_text("import os; os._exit(0)" if where == "import" else ENV)
    done = command(
        tmp_path, "train", "env=mine:make", f"env.params.where={where}", f"vector.backend={backend}"
    )
    assert done.returncode in (1, 2)
    first = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    called = "os._exit(0) was called" in first and "mine.py:" in first
    assert called or (backend == "workers" and "exited with code 0" in first), first
    assert "Traceback" not in done.stderr


def test_evaluation_names_who_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(textwrap.dedent(ENV))
    words = ["env=mine:make", "env.params.where=never", "trainer.total_timesteps=500", "run.name=one"]
    assert command(tmp_path, "train", *words).returncode == 0
    (tmp_path / "mine.py").write_text(textwrap.dedent(ENV).replace("where == self.where", 'where == "step"'))
    done = command(tmp_path, "eval", "runs/one", "--episodes", "2")
    assert done.returncode == 1
    assert "SystemExit: os._exit(0) was called" in done.stderr


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "metta_fast", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=120,
    )
