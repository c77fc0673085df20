"""`metta-fast new-env`: what it writes passes its own test, in the house style; mistakes write nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.scaffold.new_env import FILES, new_env
from tests.c_compiler import CC

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = ("-p", "no:cacheprovider", "-p", "no:importnb")
"""The second is of a package that mettagrid brings, and pytest 9 refuses it (pyproject.toml)."""


def test_the_command_writes_four_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-env", "walk", "--dir", "mine"]) == 0
    written = sorted(path.name for path in (tmp_path / "mine/walk").iterdir())
    assert written == sorted(file.format("walk") for file in FILES.values())
    assert "env.path=./mine/walk" in capsys.readouterr().out
    assert main(["new-env", "walk", "--dir", "mine"]) == 2
    assert "is taken" in capsys.readouterr().err


@pytest.mark.skipif(not CC, reason="no C compiler here")
def test_the_written_test_passes_and_the_rules_have_no_warning(tmp_path):
    folder = new_env("walk", tmp_path)[0].parent
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *WITHOUT, str(folder)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    source = tmp_path / "calls.c"
    source.write_text('#include "walk.h"\n')
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-c", f"-I{folder}"]
    includes = [*flags, f"-I{ROOT / 'envs/native'}"]
    subprocess.run([*CC, *includes, str(source), "-o", str(tmp_path / "calls.o")], check=True)


@pytest.mark.skipif(shutil.which("ruff") is None, reason="no ruff here")
def test_what_it_writes_is_in_the_house_style(tmp_path):
    new_env("walk", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for words in (["check"], ["format", "--check"]):
        done = subprocess.run(
            ["ruff", *words, "--no-cache", "."], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["Walk", "2walk", "", "a-b", "../x", "class", "double", "x" * 41, "ä"])
def test_a_name_that_cannot_be(tmp_path, name):
    with pytest.raises(UserError, match=r"e\.g\. walk"):
        new_env(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        new_env("walk", tmp_path / "file")
