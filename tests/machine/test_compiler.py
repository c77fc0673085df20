"""Tests which C compiler is found, its spelling of processors, and what is said where a build cannot start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from metta_fast.machine import compiler
from metta_fast.machine.compiler import Compiler, build_obstacle, find_compiler, interpreter_obstacle

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CC", raising=False)
    compiler._find.cache_clear()
    yield
    compiler._find.cache_clear()


def program(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Leaves nothing but the programs in `folder` to find."""
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: "")


def test_a_compiler_that_cannot_link_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path, "cc", "echo stdlib.h: No such file or directory >&2; exit 1")
    only(monkeypatch, tmp_path)
    monkeypatch.setattr(compiler, "_try_ziglang", lambda typed: None)
    assert find_compiler() is None
    program(tmp_path, "gcc", "echo gcc 99")
    compiler._find.cache_clear()
    assert find_compiler() == Compiler(("gcc",), "gcc 99")


def test_ziglang_is_used_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang/__init__.py").write_text("")
    (tmp_path / "ziglang/__main__.py").write_text("print('clang version 21')")
    only(monkeypatch, tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = find_compiler()
    assert found == Compiler((sys.executable, "-m", "ziglang", "cc"), "clang version 21", zig=True)
    assert found.arch_flags("x86-64-v3") == ["-mcpu=x86_64_v3"]
    assert found.arch_flags("native") == ["-mcpu=native"]
    assert found.arch_flags("") == ["-mcpu=baseline"]  # without it zig builds for the machine that it runs on


def test_triton_finds_ziglang_where_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = find_compiler()
    assert real is not None
    monkeypatch.setattr(compiler, "find_compiler", lambda: real)
    monkeypatch.setenv("CC", "")
    monkeypatch.delenv("CC")  # and what is set below is undone afterwards
    compiler.provide_compiler(tmp_path)
    assert "CC" not in os.environ or not shutil.which("gcc")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    compiler.provide_compiler(tmp_path / "made here")
    words = [os.environ["CC"], "--version"]
    assert subprocess.run(words, capture_output=True, text=True).stdout.startswith(real.version)


def test_a_compiler_that_was_typed_and_does_not_work_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-cc -m64")
    assert find_compiler() is None
    assert (build_obstacle() or "").startswith("CC=no-such-cc -m64 does not compile a library here")


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("apt-get", r"apt-get install python3\.\d+-dev$"),
        ("dnf", r"dnf install python3(\.\d+)?-devel$"),
        ("pacman", r"pacman -S python$"),
        (None, r"apt-get install .*, dnf install .*, pacman -S "),
    ],
)
def test_missing_headers_are_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tool: str | None, command: str
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda key: str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: name if name == tool else None)
    obstacle = build_obstacle() or ""
    assert obstacle.startswith(f"the headers of Python {sys.version.split()[0]} ({sys.executable}) are not")
    assert re.search(command, obstacle)


def test_interpreters_that_are_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter_obstacle() is None
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else None)
    assert "free-threaded build of Python is not supported" in (interpreter_obstacle() or "")
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    assert "use Python 3.11 to 3.14" in (interpreter_obstacle() or "")


def test_the_start_script_is_told_before_anything_is_installed(tmp_path: Path) -> None:
    """As ./run_ultra_fast.sh asks: exit code 0, 2 or 3."""
    words = [sys.executable, "-I", str(ROOT / "metta_fast/machine/compiler.py")]
    for environment, code in (({}, 0), ({"CC": "no-such-cc"}, 2), ({"PATH": str(tmp_path)}, 3)):
        usual = {"PATH": "/usr/bin:/bin"}
        done = subprocess.run(words, env=usual | environment, capture_output=True, text=True)
        found = find_compiler()
        if code != 2 and (found is None or found.zig or Path(found.command[0]).is_absolute()):
            continue  # no other compiler here, or this Python names its own by its path
        assert done.returncode == code
        assert done.stderr.startswith("error: CC=no-such-cc") if code == 2 else not done.stderr


def test_the_supported_versions_are_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest, newest = compiler.OLDEST[1], compiler.NEWEST[1]
    assert project["requires-python"] == f">=3.{oldest},<3.{newest + 1}"
    versions = [f"3.{minor}" for minor in range(oldest, newest + 1)]
    named = [word.rpartition(" ")[2] for word in project["classifiers"] if "Python ::" in word]
    assert named == versions
    assert f'VERSIONS="{" ".join(reversed(versions))}"' in (ROOT / "run_ultra_fast.sh").read_text()
