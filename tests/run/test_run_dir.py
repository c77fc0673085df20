"""Tests a run's folder: its name, and the lock."""

import subprocess
import sys

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.storage.run_folder import RunDir, create


def test_names_tell_environment_and_time(tmp_path):
    first, second = (
        create(str(tmp_path), None, "my pkg.module:fn"),
        create(str(tmp_path), None, "my pkg.module:fn"),
    )
    assert first.name.startswith("my-pkg.module-fn-2")
    assert first.name != second.name


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "/tmp/x", "a b", "x" * 101, "-x"])
def test_unsafe_names_are_refused(tmp_path, name):
    with pytest.raises(UserError, match="safe folder name"):
        create(str(tmp_path), name, "grid")


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"run\.dir"):
        create(str(tmp_path / "file"), None, "grid")


def test_the_lock_is_given_back_when_its_process_dies(tmp_path):
    run = create(str(tmp_path), "r", "grid")
    code = (
        f"import os, pathlib; from metta_fast.storage.run_folder import RunDir; "
        f"r = RunDir(pathlib.Path({str(run.path)!r})); "
        f"r.lock(); print('locked', flush=True); os.read(0, 1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        with pytest.raises(UserError, match=f"process {other.pid}"):
            run.lock()
        other.kill()
    run.lock()
    with pytest.raises(UserError, match="being trained"):
        RunDir(run.path).lock()
    run.unlock()
