"""`metta-fast build`: its names, and what is said where nothing can be built; tests/robot/test_new_robot.py builds."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.machine import compiler, installation
from metta_fast.scaffold import build as module
from metta_fast.scaffold.build import ROBOTS, build, extension_names
from metta_fast.scaffold.new_env import new_env
from tests.c_compiler import CC

ROOT = Path(__file__).resolve().parents[2]


def test_names_of_robots_and_extensions() -> None:
    known = extension_names(ROOT)
    assert known["ant"] == known["robot"] == known["_rules"] == ROBOTS  # a robot's header is part of both
    assert known["grid"] == "metta_fast.envs.grid._grid"
    assert known["kernel"] == "metta_fast.algorithms.ppo.advantage._kernel"
    assert "kit" not in known  # a header without rules


def test_an_unknown_name_is_told_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "hoper"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: unknown extension 'hoper'; did you mean 'hopper'? known: all, ant, ")
    assert error.count("\n") == 1


def test_an_installed_copy_has_nothing_to_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    assert main(["build"]) == 2
    assert "installed copy, whose extensions are compiled already" in capsys.readouterr().err


@pytest.mark.skipif(not CC, reason="no C compiler here")
def test_a_folder_is_compiled_ahead_of_its_first_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also from an installed copy, and the second time from the cache; a fault is one line."""
    monkeypatch.setattr(installation, "ROOT", tmp_path)  # no checkout
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "cache"))
    folder = new_env("walk", tmp_path)[0].parent
    monkeypatch.chdir(tmp_path)
    assert main(["build", "./walk"]) == 0
    (library,) = (tmp_path / "cache").rglob("walk-*.so")
    monkeypatch.setattr(subprocess, "run", None)  # nothing is compiled
    assert main(["build", "walk"]) == 0
    assert capsys.readouterr().out.count(f"{library} (") == 2
    monkeypatch.undo()
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "cache"))
    (folder / "walk.h").write_text((folder / "walk.h").read_text().replace("s->step++;", "s->step++"))
    assert main(["build", str(folder)]) == 2
    error = capsys.readouterr().err
    assert "walk.h does not compile: " in error
    assert error.count("\n") == 1


def test_without_a_compiler_both_ways_to_get_one_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    with pytest.raises(UserError, match=r"no C compiler was found; type: .*install .*pip install ziglang"):
        build("metta_fast.envs.grid._grid", ROOT)


@pytest.mark.parametrize(
    ("module_name", "said"),
    [("Cython", r"pip install 'cython>=3"), ("mujoco", r"pip install -e .*\[robots\]")],
)
def test_a_missing_package_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, module_name: str, said: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module_name else real(name))
    with pytest.raises(UserError, match=said):
        build(ROBOTS, ROOT)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout without extensions, in a path with a space."""
    root = tmp_path / "a checkout"
    shutil.copytree(ROOT / "metta_fast/machine", root / "metta_fast/machine")
    shutil.copytree(ROOT / "envs/robot/tasks", root / "envs/robot/tasks")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root / name)
    (root / "metta_fast/machine/built_for.txt").unlink()
    return root


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("In file included from envs/robot/_robot.c:9:\nenvs/robot/tasks/arm.h:30:5: error: 'x' undeclared\n",
         "envs/robot/tasks/arm.h:30:5: error: 'x' undeclared (the compiler's whole output: "),
        ("error: no C compiler was found; type: sudo apt-get install gcc\n",
         "no C compiler was found; type: sudo apt-get install gcc (the compiler's whole output: "),
        ("", "no output (the compiler's"),
    ],
)  # fmt: skip
def test_a_fault_is_one_line(tree: Path, output: str, said: str) -> None:
    (tree / "setup.py").write_text(f"import sys\nsys.stderr.write({output!r})\nsys.exit(1)\n")
    with pytest.raises(UserError) as error:
        build(None, tree)
    assert str(error.value).startswith(said)
    assert (tree / "build/build.log").read_text() == output


def test_a_folder_that_cannot_be_written_is_named(tree: Path) -> None:
    (tree / "build").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*build.*; build in a copy of"):
        build(None, tree)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="nothing to choose on this processor")
def test_a_build_in_place_keeps_its_processor(tree: Path) -> None:
    def built_for(*words: str, **environment: str) -> str:
        clean = {key: value for key, value in os.environ.items() if key != "MF_ARCH"}
        subprocess.run(
            [sys.executable, "setup.py", "-q", *words], cwd=tree, env=clean | environment, check=True
        )
        return (tree / "metta_fast/machine/built_for.txt").read_text().partition("\n")[0]

    assert built_for("build_ext", "--inplace", MF_ARCH="x86-64-v2") == "x86-64-v2"
    assert built_for("build_ext", "--inplace") == "x86-64-v2"
    assert built_for("build_ext") == "x86-64-v3"  # a wheel is for others


def test_names_are_completed_and_helped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["build", "--help"])
    assert "metta-fast build arm" in capsys.readouterr().out
    assert module.parser().prog == "metta-fast build"
