"""Tests the cache of compiled extensions, and that a source's files are exactly those that a compiler reads."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from metta_fast.machine import build_cache
from metta_fast.machine.compiler import find_compiler

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = [
    ROOT / folder for folder in ("envs/native", "metta_fast", "metta_fast/runtime/c")
]  # as in setup.py
PACKAGES = {"metta_fast.envs": ROOT / "envs", "metta_fast": ROOT / "metta_fast"}
EXTENSIONS = sorted([*(ROOT / "envs").rglob("*.pyx"), *(ROOT / "metta_fast").rglob("*.pyx")])
LIST = ROOT / "envs/robot/tasks/list.h"


def sources(file: Path) -> set[Path]:
    return build_cache.sources(file, INCLUDE, PACKAGES)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler here")
@pytest.mark.parametrize("source", EXTENSIONS, ids=lambda file: file.stem)
def test_every_header_that_the_compiler_reads_is_found(source: Path, tmp_path: Path) -> None:
    found = sources(source)
    names = {name for file in found for name in re.findall(r'cdef extern from "([^"<]+)"', file.read_text())}
    names |= set(re.findall(r'#\s*include "([^"]+)"', source.read_text()))
    text = "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n"
    (tmp_path / "all.c").write_text(text + "".join(f'#include "{name}"\n' for name in sorted(names)))
    words = [f"-I{folder}" for folder in (source.parent, *INCLUDE, *(f.parent for f in found))]
    command = [*find_compiler().command, "-MM", "-MG", *words, str(tmp_path / "all.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = re.findall(r"(?:\\ |\S)+", done.stdout.replace("\\\n", " "))[2:]
    read = {Path(name.replace("\\ ", " ")).resolve() for name in names if os.path.isabs(name)}
    assert read <= found
    assert {file for file in found if file.suffix == ".h"} >= read


def test_a_new_robot_changes_no_extension_but_the_robots() -> None:
    assert {source.stem for source in EXTENSIONS if LIST in sources(source)} == {"_robot", "_rules"}


def test_declarations_of_another_module_are_followed() -> None:
    assert ROOT / "envs/native/_batch.pxd" in sources(ROOT / "envs/grid/_grid.pyx")
    assert ROOT / "metta_fast/policy/fused_act/mlp_network.pxd" in sources(
        ROOT / "metta_fast/algorithms/ppo/c/_mlp_update.pyx"
    )


def test_the_key_follows_content_names_and_words(tmp_path: Path) -> None:
    first, second = tmp_path / "a.h", tmp_path / "b.h"
    first.write_text("1")
    second.write_text("1")
    keys = {build_cache.digest(["-O3"], [file], tmp_path) for file in (first, second)}
    keys.add(build_cache.digest(["-O2"], [first], tmp_path))
    first.write_text("2")
    keys.add(build_cache.digest(["-O3"], [first], tmp_path))
    assert len(keys) == 4


def test_what_was_written_is_read_and_what_is_damaged_is_not(tmp_path: Path) -> None:
    assert build_cache.read(tmp_path, "key") is None
    build_cache.write(tmp_path, "key", b"compiled")
    assert build_cache.read(tmp_path, "key") == b"compiled"
    (tmp_path / "key").write_bytes((tmp_path / "key").read_bytes()[:-1])
    assert build_cache.read(tmp_path, "key") is None


def test_the_oldest_files_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_cache, "LIMIT", 2)
    for number, key in enumerate(("first", "second", "third")):
        build_cache.write(tmp_path, key, b"")
        os.utime(tmp_path / key, (number, number))
    build_cache.write(tmp_path, "fourth", b"")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["fourth", "third"]


def test_a_folder_that_cannot_be_written_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "cache"))
    assert build_cache.folder(tmp_path / "other") == tmp_path / "cache/extensions"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "file"))
    assert build_cache.folder(tmp_path / "other") == tmp_path / "other"
