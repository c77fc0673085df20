"""Breaks short trainings at each sort of point at which they change a file, once each (tests/run/chaos)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.c_compiler import CC

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not CC, reason="faults need LD_PRELOAD and a C compiler"
)


@pytest.mark.parametrize("words", [
    *(["python", "--only", "^(?!.*(config|summary|cache))", "--part", f"{part}/3"] for part in (1, 2, 3)),
    ["sac", "--only", "replay-"],  # what the first has not
    ["grid", "--only", "replays|events"],
    ["python", "--resumed", "--only", "aside|truncate|rmdir|rename"],
], ids=" ".join)  # fmt: skip
def test_a_broken_session_loses_nothing(words):
    done = subprocess.run(
        [sys.executable, "-m", "tests.run.chaos", *words, "--ways", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout
    assert ", 0 wrong, " in done.stdout
    assert " 0 times broken" not in done.stdout, done.stdout


def test_a_fault_that_loses_something_is_seen(tmp_path):
    """A checkpoint that is renamed into place before its files are flushed does not survive a failure of the power."""
    patch = tmp_path / "sitecustomize.py"
    patch.write_text("import os\nos.fsync = lambda file: None\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.run.chaos", "python", "--modes", "power", "--only", "rmdir"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}"},
    )
    assert done.returncode == 1, done.stdout
