"""Tests which folder a resume writes into, and when: nothing is overwritten, and nothing is chosen too early."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from metta_fast.cli import main
from metta_fast.metrics.loggers import read_rows
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from metta_fast.storage.run_identity import home
from metta_fast.storage.run_lock import RunLocked
from tests.run.test_resume import start
from tests.tiny import COUNTER, named, trained


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run with a checkpoint of each of its two epochs."""
    keys = ("trainer.total_timesteps=500", "run.checkpoint_interval=1", "run.min_interval_s=0")
    return trained(tmp_path_factory.mktemp("made"), *COUNTER, *keys)


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "runs" / "r")


def last(run: Path) -> Path:
    return checkpoint.steps(run / "checkpoints")[-1][1]


def content(folder: Path, but: str = "lock") -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("lock", but)
    }


def train(folder: Path, *words: str) -> int:
    return main(["train", f"run.dir={folder}", "trainer.total_timesteps=1000", *words])


def epochs(run: Path) -> list[float]:
    return [row["train/epoch"] for row in read_rows(run / "metrics.jsonl")]


def test_a_copied_checkpoint_starts_a_new_run_and_touches_nothing_above_it(run, tmp_path, capsys):
    project = tmp_path / "project"
    copy = shutil.copytree(last(run), project / "checkpoints" / last(run).name)
    for name in ("config.yaml", "metrics.jsonl", "train.log"):
        (project / name).write_text("mine\n")
    before = content(project)
    assert train(tmp_path / "new", f"resume={copy}", "run.name=next") == 0
    assert content(project) == before
    assert "is not in the folder of its run" in capsys.readouterr().err
    assert main(["replay", str(copy)]) == 2
    assert "is not in a run's folder: name the page's file with --html" in capsys.readouterr().err
    assert not (project / "replays").exists()
    assert epochs(tmp_path / "new" / "next") == [3, 4]
    assert home(last(tmp_path / "new" / "next")).path == tmp_path / "new" / "next"
    assert main(["train", f"resume={copy.parent.parent}"]) == 2
    assert f"start a new run from one of them with resume={copy}" in capsys.readouterr().err
    assert content(project) == before


def test_a_checkpoint_of_another_run_is_not_taken_for_the_runs_own(run, tmp_path, capsys):
    other = trained(tmp_path / "other", *COUNTER, "trainer.total_timesteps=1000")
    shutil.copytree(last(other), run / "checkpoints" / last(other).name)
    assert train(tmp_path / "runs", "resume=r", "trainer.total_timesteps=750") == 0
    assert "checkpoint of another run skipped" in capsys.readouterr().err
    assert epochs(run) == [1, 2, 3]


def test_a_run_that_was_renamed_copied_or_linked_goes_on_in_its_folder(run, tmp_path):
    moved = run.rename(run.with_name("moved"))
    linked = tmp_path / "linked"
    linked.symlink_to(moved)
    for folder in (moved, linked):
        begun = start(folder.parent, f"resume={last(folder)}")
        assert begun.folder.path == folder
        begun.release()


@pytest.mark.parametrize("same", [True, False])
def test_runs_of_earlier_versions_are_known_by_their_configuration(run, same):
    (run / "id").unlink()
    path = last(run)
    meta = json.loads((path / "meta.json").read_text())
    del meta["run_id"]
    (path / "meta.json").write_text(json.dumps(meta))
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["env"]["device"] = "another"
    if not same:
        config["seed"] += 1
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert (home(path) is not None) == same


def test_a_folder_with_other_files_is_not_taken_for_a_run(tmp_path, capsys):
    project = tmp_path / "project"
    project.mkdir()
    (project / "config.yaml").write_text("mine: 1\n")
    assert main(["train", *COUNTER, *named(tmp_path, "project"), "resume=auto"]) == 2
    assert "holds other files, not a run; choose another name" in capsys.readouterr().err
    assert content(project) == {"config.yaml": b"mine: 1\n"}


@pytest.mark.parametrize("words", [["resume=r"], ["resume=auto", "run.name=r"], ["resume=auto"]])
def test_a_run_whose_checkpoints_are_all_damaged_is_not_started_again(run, tmp_path, capsys, words):
    paths = [path for _, path in checkpoint.steps(run / "checkpoints")]
    (paths[0] / "algorithm.pt").write_bytes(b"cut")
    (paths[1] / "manifest.json").unlink()
    before = content(run)
    assert train(tmp_path / "runs", *words) == 2
    said = capsys.readouterr().err
    assert said.count("error: ") == 1
    assert f"{paths[0]}: the checksum of algorithm.pt does not match" in said
    assert f"{paths[1]}: manifest.json cannot be read" in said
    assert "start a new run with run.name=r-2 and without resume=" in said
    assert content(run) == before
    assert train(tmp_path / "runs", *COUNTER, "run.name=r-2") == 0


def test_the_run_is_locked_before_its_checkpoint_is_chosen(run, tmp_path, monkeypatch):
    held = RunDir(run)
    held.lock()
    for word in ("r", "auto", str(last(run))):
        with pytest.raises(RunLocked, match="run r is being trained by process"):
            start(tmp_path / "runs", f"resume={word}")
    assert main(["train", f"run.dir={tmp_path / 'runs'}", "resume=r", "--cfg", "job"]) == 0
    held.unlock()
    real, seen = checkpoint.latest, []
    monkeypatch.setattr(
        checkpoint,
        "latest",
        lambda *given, **named: seen.append(start_is_locked(run)) or real(*given, **named),
    )
    start(tmp_path / "runs", "resume=auto").release()
    assert seen == [True]
    with pytest.raises(Exception, match=r"trainer\.gamma"):
        start(tmp_path / "runs", "resume=auto", "env.num_envs=9", "trainer.gamma=2")
    assert not start_is_locked(run)


def start_is_locked(run: Path) -> bool:
    folder = RunDir(run)
    try:
        folder.lock()
    except RunLocked:
        return True
    folder.unlock()
    return False


PAUSED = """
import pathlib, sys, time
import metta_fast.resolve.resolve as at_resolve
from metta_fast.cli import main
from metta_fast.storage import checkpoint
where, name, until = sys.argv[1:4]
module = {"save": checkpoint, "resolve": at_resolve}[name]
real = getattr(module, name)
def paused(*given):
    pathlib.Path(where).touch()
    while not pathlib.Path(until).exists():
        time.sleep(0.02)
    return real(*given)
setattr(module, name, paused)
sys.exit(main(sys.argv[4:]))
"""
"""A training that makes the file `where` when it comes to a function, and goes on when the file `until` exists."""


def test_a_process_that_is_still_saving_keeps_its_newer_rows(run, tmp_path):
    """A second one, started meanwhile, may not choose the older checkpoint and go on when the first has ended."""

    def begin(at: str, total: str) -> subprocess.Popen:
        marks = [str(tmp_path / f"at {at}"), at, str(tmp_path / f"after {at}")]
        words = ["train", f"run.dir={tmp_path / 'runs'}", "resume=auto", f"trainer.total_timesteps={total}"]
        return subprocess.Popen(
            [sys.executable, "-c", PAUSED, *marks, *words], stderr=subprocess.PIPE, text=True
        )

    with begin("save", "750") as old:
        wait_for(tmp_path / "at save", old)
        with begin("resolve", "600") as new:
            wait_for(tmp_path / "at resolve", new)
            (tmp_path / "after save").touch()
            assert old.wait(60) == 0
            (tmp_path / "after resolve").touch()
            said = new.communicate(timeout=60)[1]
    assert not list(run.rglob("*aside*")), said
    assert epochs(run) == [1, 2, 3]
    assert new.returncode == 2
    assert "run r is being trained by process" in said


def wait_for(mark: Path, process: subprocess.Popen) -> None:
    """Waits until the mark exists or the process has ended."""
    deadline = time.monotonic() + 60
    while not mark.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
