"""Tests what is found, kept and removed in a folder of checkpoints, and how one is written: in sequence, flushed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from metta_fast.contracts.errors import UserError
from metta_fast.storage import checkpoint, durable
from metta_fast.storage.atomic_file import whole
from metta_fast.storage.checkpoint import DamagedCheckpoint
from metta_fast.storage.durable import HashedFile
from metta_fast.storage.run_folder import create
from tests.run.test_checkpoint import STATE, save


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def put(path: Path, name: str, state: object) -> None:
    """Writes another state under its right checksum."""
    torch.save(state, path / name)
    manifest = json.loads((path / "manifest.json").read_text())
    data = (path / name).read_bytes()
    manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    (path / "manifest.json").write_text(json.dumps(manifest))


class Unknown:
    """Pickled by reference, as an enum of an environment is: `weights_only` refuses it."""


UNLOADABLE = {
    "a class": ({"x": Unknown()}, r"it refers to \S*Unknown"),
    "a broken array": ({"x": {"__ndarray__": 5}}, "TypeError"),
    "another dtype": ({"x": {"__ndarray__": ["O", [1], torch.zeros(8, dtype=torch.uint8)]}}, "TypeError"),
}


@pytest.mark.parametrize("name", ["algorithm", "env"])
@pytest.mark.parametrize("kind", UNLOADABLE)
def test_one_that_cannot_be_loaded_is_skipped_like_a_damaged_one(tmp_path, name, kind):
    state, words = UNLOADABLE[kind]
    for step in (10, 20):
        checkpoint.save(tmp_path, step, {"algorithm": STATE, "env": STATE}, {})
    put(tmp_path / "step_000000000020", f"{name}.pt", state)
    warnings: list[str] = []
    found = checkpoint.latest(tmp_path, warnings.append, ["algorithm", "env"])
    assert found.step == 10
    assert len(warnings) == 1
    assert f"{name}.pt is not a state written by metta_fast" in warnings[0]
    with pytest.raises(UserError, match=words):
        checkpoint.read(tmp_path / "step_000000000020").load(name)
    other = {"algorithm": "env", "env": "algorithm"}[name]
    assert checkpoint.latest(tmp_path, pytest.fail, [other]).step == 20


def test_a_state_that_was_made_ready_is_read_once(tmp_path):
    save(tmp_path, 10)
    found = checkpoint.latest(tmp_path, pytest.fail, ["algorithm", "env"])
    first = found.load("algorithm")
    assert found.load("algorithm") is not first  # read again: nothing was kept
    assert found.load("env") is None


def interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves step 20 once more and is killed between the two renames."""
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name.startswith(".writing-"):
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            save(folder, 20)


def test_one_that_was_to_be_replaced_is_found_after_a_kill(tmp_path, monkeypatch):
    save(tmp_path, 10)
    save(tmp_path, 20)
    interrupted(tmp_path, monkeypatch)
    assert not (tmp_path / "step_000000000020").exists()
    assert [step for step, _ in checkpoint.steps(tmp_path)] == [10, 20]
    found = checkpoint.latest(tmp_path, pytest.fail)
    assert found.step == 20
    checkpoint.prune(tmp_path, 5)
    assert [step for step, _ in checkpoint.steps(tmp_path)] == [10, 20]
    assert checkpoint.clear_unfinished(tmp_path) == []
    assert names(tmp_path) == ["step_000000000010", "step_000000000020"]
    assert found.load("algorithm")["epoch"] == 3  # found before it got its name back


def test_of_several_replaced_ones_the_newest_counts_and_the_others_are_removed(tmp_path, monkeypatch):
    for epoch in (1, 2):
        path = checkpoint.save(tmp_path, 20, {"algorithm": {"epoch": epoch}}, {})
        path.rename(tmp_path / f"replaced-step_000000000020-{epoch}")
    ((step, path),) = checkpoint.steps(tmp_path)
    assert (step, path.name) == (20, "replaced-step_000000000020-2")
    assert checkpoint.prune(tmp_path, 1) == []
    assert names(tmp_path) == ["replaced-step_000000000020-2"]
    save(tmp_path, 20)
    assert checkpoint.prune(tmp_path, 1) == []
    assert names(tmp_path) == ["step_000000000020"]


def test_what_is_not_a_checkpoint_is_left_alone(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    folder = tmp_path / "checkpoints"
    linked = checkpoint.save(elsewhere, 2, {}, {})
    for step in (4, 5, 6):
        save(folder, step)
    odd = ["step_000000000001", "replaced-step_000000000003-1", ".writing-x", ".removing-y"]
    for name in odd:
        (folder / name).write_text("a file")
    (folder / "step_000000000002").symlink_to(linked)
    (folder / "step_000000000005" / "meta.json").write_text("[]")
    assert [step for step, _ in checkpoint.steps(folder)] == [2, 4, 5, 6]
    assert checkpoint.prune(folder, 1) == []
    assert checkpoint.clear_unfinished(folder) == []
    assert names(folder) == sorted([*odd, "step_000000000002", "step_000000000006"])
    assert checkpoint.latest(folder, pytest.fail).step == 6
    checkpoint.read(linked)


def test_one_that_cannot_be_removed_does_not_keep_the_others(tmp_path, monkeypatch):
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / ".writing-step_000000000004-1").mkdir()
    real = shutil.rmtree

    def rmtree(path: Path) -> None:
        if "000000000001" in path.name or "000000000004" in path.name:
            raise PermissionError(13, "Permission denied", str(path))
        real(path)

    monkeypatch.setattr("metta_fast.storage.checkpoint.shutil.rmtree", rmtree)
    (problem,) = checkpoint.prune(tmp_path, 1)
    assert problem == f"{tmp_path / 'step_000000000001'} cannot be removed: Permission denied"
    assert checkpoint.prune(tmp_path, 1) == []
    assert [step for step, _ in checkpoint.steps(tmp_path)] == [3]
    assert len(checkpoint.clear_unfinished(tmp_path)) == 2


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """What is flushed, and what is renamed, in order; paths from tmp_path."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("only Linux names a descriptor's path")
    made: list[str] = []
    sync, rename, replace = os.fsync, Path.rename, Path.replace

    def place(path: object) -> str:
        return str(path).replace(str(tmp_path), "").replace(str(os.getpid()), "PID")

    def fsync(descriptor: int) -> None:
        made.append(f"sync {place(os.readlink(f'/proc/self/fd/{descriptor}'))}")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for name, real in (("rename", rename), ("replace", replace)):
        monkeypatch.setattr(
            Path, name,
            lambda self, to, real=real: made.append(f"{place(self)} to {place(to)}") or real(self, to),
        )  # fmt: skip
    return made


def test_every_file_is_flushed_before_the_rename_and_the_folder_after_it(tmp_path, calls):
    save(tmp_path, 1)
    beside = "/.writing-step_000000000001-PID"
    files = [f"sync {beside}/{name}" for name in ("meta.json", "algorithm.pt", "manifest.json")]
    assert calls == [*files, f"sync {beside}", f"{beside} to /step_000000000001", "sync "]


def test_a_small_file_is_flushed_before_the_rename_and_its_folder_after_it(tmp_path, calls):
    with whole(tmp_path / "config.yaml") as beside:
        beside.write_text("a")
    part = "/.config.part.yaml"
    assert calls == [f"sync {part}", f"{part} to /config.yaml", "sync "]


def test_a_new_runs_folders_are_flushed_into_their_parents(tmp_path, calls):
    create(str(tmp_path / "a" / "b"), "run", "env")
    assert calls == ["sync ", "sync /a", "sync /a/b"]
    calls.clear()
    create(str(tmp_path / "a" / "b"), None, "env")
    assert calls == ["sync /a/b"]


def test_a_folder_that_cannot_be_read_is_not_flushed(tmp_path, monkeypatch):
    def denied(path, flags):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(durable.os, "open", denied)
    durable.sync_folder(tmp_path)


def test_a_state_is_written_in_sequence_without_a_copy(tmp_path, monkeypatch):
    """Piece by piece, each tensor's bytes from where they are; a bucket mount cannot seek."""
    tensor, array = torch.arange(300_000.0), np.arange(200_000.0)
    written: list[int] = []
    real = HashedFile.write

    def write(self, data):
        if memoryview(data).nbytes > 1_000_000:
            written.append(np.frombuffer(data, np.uint8).ctypes.data)
        return real(self, data)

    monkeypatch.setattr(HashedFile, "write", write)
    for name in ("seek", "tell", "truncate"):
        assert not hasattr(HashedFile, name)
    path = checkpoint.save(tmp_path, 1, {"algorithm": {"a": tensor, "b": array}}, {})
    assert written == [tensor.data_ptr(), array.ctypes.data]
    found = checkpoint.read(path).load("algorithm")
    assert torch.equal(found["a"], tensor)
    np.testing.assert_array_equal(found["b"], array)


def test_states_are_made_one_after_another(tmp_path):
    """A function is called when its file is written."""
    seen = []

    def made(name: str) -> dict[str, str]:
        seen.append((name, sorted(path.name for path in tmp_path.rglob("*.pt"))))
        return {"name": name}

    states = {name: lambda name=name: made(name) for name in ("a", "b")} | {"c": lambda: None}
    path = checkpoint.save(tmp_path, 1, states, {})
    assert seen == [("a", []), ("b", ["a.pt"])]
    assert checkpoint.read(path).load("b") == {"name": "b"}
    assert checkpoint.read(path).load("c") is None


@pytest.mark.parametrize("size", [100, 1_000_000])
def test_a_disk_that_is_full_in_the_middle_of_a_state_is_a_users_error(tmp_path, monkeypatch, size):
    """At the first byte or later: torch's writer in C++ must not hide the cause."""
    before = save(tmp_path, 10)
    full = open("/dev/full", "wb")  # noqa: SIM115
    real = HashedFile.__init__

    def start(self, path):
        real(self, path)
        if path.name == "algorithm.pt":
            self._file.close()
            self._file = full

    monkeypatch.setattr(HashedFile, "__init__", start)
    with pytest.raises(UserError, match="No space left"):
        checkpoint.save(tmp_path, 20, {"algorithm": {"a": torch.zeros(size)}}, {})
    assert names(tmp_path) == [before.name]


def test_a_leftover_of_this_process_is_written_over(tmp_path):
    left = tmp_path / f".writing-step_000000000001-{os.getpid()}"
    left.mkdir()
    (left / "old.pt").write_text("old")
    path = save(tmp_path, 1)
    assert names(path) == ["algorithm.pt", "manifest.json", "meta.json"]


def test_a_checksum_of_a_large_file_is_right(tmp_path):
    path = checkpoint.save(tmp_path, 1, {"algorithm": {"a": torch.zeros(700_000)}}, {})
    checkpoint.read(path)
    with open(path / "algorithm.pt", "r+b") as file:
        file.seek(-1_000_000, 2)
        file.write(b"x")
    with pytest.raises(DamagedCheckpoint, match="checksum"):
        checkpoint.read(path)
