"""Tests a run's folder: its name, and the lock."""

import subprocess
import sys
from pathlib import Path

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.inference.evaluate import find_checkpoint
from metta_fast.resolve.compose import compose
from metta_fast.run.resume import prepare
from metta_fast.run.trainer import Trainer
from metta_fast.storage.run_folder import RunDir, create, runs
from metta_fast.watch.state import find_run
from tests.run.fake import resolved


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


def test_runs_that_cannot_be_read_or_vanish_are_left_out(tmp_path, monkeypatch):
    for name in ("a", "closed", "vanishes"):
        create(str(tmp_path), name, "grid").config.write_text("")
    real = Path.stat

    def stat(path, **keys):
        if path.parent.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        if path.parent.name == "vanishes":
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return real(path, **keys)

    monkeypatch.setattr(Path, "stat", stat)
    assert [run.name for run in runs(str(tmp_path))] == ["a"]


def test_a_folder_of_runs_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    def iterdir(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with pytest.raises(UserError, match=r"cannot read the folder of runs .*: Permission denied; .*run\.dir"):
        runs(str(tmp_path))
    monkeypatch.undo()
    assert runs(str(tmp_path / "nothing")) == []


@pytest.mark.parametrize("name", ["x" * 300, "~nobody-of-this-name/runs"])
def test_names_that_no_folder_can_have_are_told(name):
    for ask in (find_run, lambda name: find_checkpoint(name, best=False)):
        with pytest.raises(UserError, match="no run"):
            ask(name)
    composed = compose([f'resume="{name}"'])
    with pytest.raises(UserError, match="no such folder"):
        prepare(composed)


def test_an_unused_folder_that_cannot_be_removed_hides_no_error(tmp_path, monkeypatch, caplog):
    def rmtree(path):
        raise OSError(39, "Directory not empty", str(path))

    def build(config, factory):
        raise UserError("no such policy")

    trainer = Trainer(resolved(tmp_path), build=build)
    monkeypatch.setattr("metta_fast.storage.run_folder.shutil.rmtree", rmtree)
    with pytest.raises(UserError, match="no such policy"):
        trainer.run()
    assert "cannot be removed: Directory not empty" in caplog.text
    trainer.folder.lock()  # it was released
    trainer.folder.unlock()
