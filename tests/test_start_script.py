"""Tests ./run_ultra_fast.sh in a copy of the tree, in a path with a space, with stubs for the interpreters: what it
installs and builds, when, from where, and what it says."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STUB = """#!/bin/bash
# An interpreter that only notes what it is asked for. Files in STUBS change what it does.
[ "$1" = -c ] || [[ "$1" = -*V* ]] || echo "${0##*/} $*" >>"$STUBS/calls"
case "$*" in
*Py_GIL_DISABLED*) ! grep -qx "${0##*/}" "$STUBS/unsupported" 2>"$STUBS/null" ;;
*"import venv, ensurepip"*) ;;
*Python.h*) ! grep -qx "${0##*/}" "$STUBS/no_headers" 2>"$STUBS/null" ;;
*"import torch"* | *"import sys, torch"*) exit 1 ;;
"-m pytest"*) ;;
-VV | --version) echo "Python 3.13.0" ;;
"-I metta_fast/machine/compiler.py") exit "$(cat "$STUBS/compiler")" ;;
"-m venv --clear .venv")
    rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python
    if [ -e "$STUBS/venv_fails" ]; then exit 1; fi
    ;;
"-m pip install"*)
    if [ -e "$STUBS/slow" ]; then echo "Collecting torch"; sleep 3; fi
    if [ -e "$STUBS/pip_fails" ]; then cat "$STUBS/pip_fails"; exit 1; fi
    ;;
"-m pip"*) ;;
setup.py*) echo "/* $RANDOM$RANDOM */" >envs/robot/tasks/list.h ;;
*run_optimized.py*) pwd >"$STUBS/trained_in" ;;
*) exec "$REAL" -I -S "$@" ;;
esac
"""


class Tree:
    """A checkout with nothing but what the script reads."""

    def __init__(self, folder: Path) -> None:
        self.root, self.stubs = folder / "a checkout", folder / "stubs"
        self.stubs.mkdir()
        for name in ("metta_fast/machine/compiler.py", "envs/robot/tasks/ant.h", "envs/grid/_grid.pyx"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        for name in ("run_ultra_fast.sh", "run_tests.sh", "pyproject.toml", "setup.py", "run_optimized.py"):
            shutil.copy(ROOT / name, self.root / name)
        self.give("compiler", "0")
        for name in ("python3.14", "python3.13"):
            self.give(name, STUB).chmod(0o755)

    def give(self, name: str, text: str = "") -> Path:
        (self.stubs / name).write_text(text)
        return self.stubs / name

    def environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.stubs}:{os.environ['PATH']}",
            "STUBS": str(self.stubs),
            "REAL": sys.executable,
            "HOME": str(self.stubs),
        }

    def start(
        self, *words: str, script: Path | str | None = None, cwd: Path | None = None, code: int = 0
    ) -> str:
        """Starts the script; returns what it wrote to stderr."""
        (self.stubs / "calls").write_text("")
        done = subprocess.run(
            [os.fspath(script or self.root / "run_ultra_fast.sh"), *words],
            cwd=cwd or self.root,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return done.stderr

    def calls(self, what: str) -> list[str]:
        return [line for line in (self.stubs / "calls").read_text().splitlines() if what in line]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_the_second_start_neither_installs_nor_builds(tree: Tree) -> None:
    tree.start("seed=3")
    assert tree.calls("pip install")
    assert len(tree.calls("setup.py")) == 1
    assert tree.start("seed=3") == ""
    assert tree.calls("") == [f"python {tree.root}/run_optimized.py hardware=auto seed=3"]


@pytest.mark.parametrize("name", ["envs/robot/tasks/ant.h", "envs/robot/tasks/mine.h", "envs/grid/_grid.pyx"])
def test_a_changed_source_is_built_and_nothing_installed(tree: Tree, name: str) -> None:
    tree.start("--setup-only")
    with (tree.root / name).open("a") as file:
        file.write("/* changed */\n")
    tree.start("--setup-only")
    assert (len(tree.calls("setup.py")), tree.calls("pip install")) == (1, [])


def test_through_links_and_from_another_folder(tree: Tree, tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where"
    (elsewhere / "bin").mkdir(parents=True)
    (elsewhere / "bin/first").symlink_to(tree.root / "run_ultra_fast.sh")
    (elsewhere / "train").symlink_to("bin/first")  # a relative link to a link
    tree.start("seed=3", script=elsewhere / "train", cwd=elsewhere)
    assert (tree.stubs / "trained_in").read_text().strip() == str(elsewhere)
    assert (tree.root / ".venv/bin/python").is_file()
    tree.start("seed=3", script="./train", cwd=elsewhere)
    assert tree.calls("pip install") == []
    (elsewhere / "tests").symlink_to(tree.root / "run_tests.sh")
    tree.start("-x", script=elsewhere / "tests", cwd=elsewhere)
    assert ["--no-deps" in call for call in tree.calls("pip install")] == [False, True, True, True, False]
    assert tree.calls("-m pytest")[0].endswith(" -x")


def test_a_virtual_environment_that_was_left_half_made_is_made_again(tree: Tree) -> None:
    tree.give("venv_fails")
    tree.start("--setup-only", code=2)
    (tree.stubs / "venv_fails").unlink()
    tree.start("--setup-only")
    assert len(tree.calls("-m venv")) == 1


def test_an_interrupted_installation_continues(tree: Tree) -> None:
    tree.give("slow")
    process = subprocess.Popen(
        [tree.root / "run_ultra_fast.sh", "--setup-only"],
        env=tree.environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while (
        not (tree.root / "build/setup.log").exists()
        or "Collecting" not in (tree.root / "build/setup.log").read_text()
    ):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as Ctrl-C
    said = process.communicate(timeout=20)[1]
    assert (process.returncode, said.splitlines()[-1]) == (130, "interrupted; run this again to continue")
    (tree.stubs / "slow").unlink()
    tree.start("--setup-only")
    assert tree.calls("-m venv") == []
    assert tree.calls("pip install")


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("WARNING: Retrying\nNewConnectionError(': Failed to establish a new connection: [Errno -2] Name or service "
         "not known')\nERROR: No matching distribution found for setuptools>=70\n", "no network, or the package index"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n", "disk is full"),
        ("Collecting x\nERROR: No matching distribution found for torch<2.14\n",
         "No matching distribution found for torch<2.14 (whole output: "),
    ],
)  # fmt: skip
def test_a_failed_installation_is_one_line(tree: Tree, output: str, said: str) -> None:
    tree.give("pip_fails", output)
    lines = tree.start("--setup-only", code=2).splitlines()
    assert [said in line for line in lines if line.startswith("error: ")] == [True]
    assert lines[-1].startswith("error: ")
    (tree.stubs / "pip_fails").unlink()
    tree.start("--setup-only")


def test_a_folder_that_cannot_be_written_is_named(tree: Tree) -> None:
    (tree.root / "build").write_text("")  # root may write everywhere else
    assert tree.start("--setup-only", code=2).startswith(f"error: {tree.root} cannot be written")


def test_the_newest_supported_interpreter_with_headers_is_taken(tree: Tree) -> None:
    tree.start("--setup-only")
    assert tree.calls("-m venv")[0].startswith("python3.14 ")
    shutil.rmtree(tree.root / ".venv")
    tree.give("no_headers", "python3.14\n")
    tree.start("--setup-only")
    assert tree.calls("-m venv")[0].startswith("python3.13 ")
    shutil.rmtree(tree.root / ".venv")
    tree.give("no_headers", "")
    tree.give("unsupported", "python3.14\n")
    tree.start("--setup-only")
    assert tree.calls("-m venv")[0].startswith("python3.13 ")


def test_without_a_compiler_one_is_installed(tree: Tree) -> None:
    tree.give("compiler", "3")
    tree.start("--setup-only")
    assert any("ziglang" in call for call in tree.calls("pip install"))
    assert tree.start("--setup-only") == ""


def test_what_keeps_a_build_from_starting_stops_before_anything_is_installed(tree: Tree) -> None:
    tree.give("compiler", "2")
    tree.start("--setup-only", code=2)
    assert tree.calls("venv") + tree.calls("pip") == []


def test_each_phase_is_shown_with_its_time(tree: Tree) -> None:
    plain = tree.start("--setup-only")
    assert "\r" not in plain
    assert "  making .venv …\n  making .venv: 0 s\n" in plain
    shutil.rmtree(tree.root / ".venv")
    tree.give("slow")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [tree.root / "run_ultra_fast.sh", "--setup-only"], env=tree.environment(), stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while b"installing torch" not in shown:
        shown += os.read(ours, 4096)
    process.kill()
    process.wait()
    assert b"\r\x1b[K  installing the build's packages \xe2\x80\xa6 2 s: Collecting torch" in shown
