"""Tests checkpoints: complete or absent, found by number, exact for arrays and tensors."""

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metta_fast.contracts.errors import UserError
from metta_fast.storage import checkpoint
from metta_fast.storage.checkpoint import DamagedCheckpoint, decode, encode

STATE = {
    "policy": {"w": torch.arange(6.0).reshape(2, 3)},
    "epoch": 3,
    "rng": (1 << 127) + 5,
    "maps": [np.arange(4, dtype=np.uint16), b"\x00\xff"],
    "box": np.zeros((0, 3), np.float32),
}


def save(folder, step, score=None):
    name = {"name": "env/return", "value": score} if score is not None else None
    return checkpoint.save(folder, step, {"algorithm": STATE, "env": None}, {"score": name, "epoch": 1})


def test_saved_state_comes_back_exactly(tmp_path):
    found = checkpoint.read(save(tmp_path, 7))
    state = found.load("algorithm")
    assert found.step == 7
    assert found.load("env") is None
    assert torch.equal(state["policy"]["w"], STATE["policy"]["w"])
    assert state["epoch"] == 3
    assert state["rng"] == STATE["rng"]
    np.testing.assert_array_equal(state["maps"][0], STATE["maps"][0])
    assert state["maps"][0].dtype == np.uint16
    assert state["maps"][1] == b"\x00\xff"
    assert state["box"].shape == (0, 3)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()


@given(
    st.recursive(
        PLAIN,
        lambda part: (
            st.lists(part, max_size=4) | st.dictionaries(st.text() | st.integers(), part, max_size=4)
        ),
    )
)
def test_any_nesting_of_plain_values_survives(value):
    import io

    stream = io.BytesIO()
    torch.save(encode(value), stream)
    stream.seek(0)
    assert decode(torch.load(stream, weights_only=True)) == value


def test_structured_arrays_survive():
    array = np.zeros(3, np.dtype([("x", "<i4"), ("cells", "u1", (2, 2))]))
    array["cells"][1] = 7
    back = decode(encode(array))
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()


def test_objects_are_refused():
    with pytest.raises(TypeError, match="set cannot be stored"):
        encode({"a": {1, 2}})
    with pytest.raises(TypeError, match="Python objects"):
        encode(np.array([object()]))


def test_loading_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    path = save(tmp_path, 1)
    torch.save({"x": Evil()}, path / "algorithm.pt")
    data = (path / "algorithm.pt").read_bytes()
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["algorithm.pt"] = {
        "sha256": __import__("hashlib").sha256(data).hexdigest(),
        "bytes": len(data),
    }
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"algorithm\.pt is not a state written by metta_fast"):
        checkpoint.read(path).load("algorithm")
    assert not (tmp_path / "owned").exists()


def test_only_listed_files_are_read(tmp_path):
    path = save(tmp_path, 1)
    torch.save({"x": 1}, path / "env.pt")
    assert checkpoint.read(path).load("env") is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=5), part, max_size=3),
)
KEYS = st.sampled_from(["schema", "step", "files"])


@given(
    st.one_of(
        JSON, st.tuples(KEYS, JSON), st.tuples(st.sampled_from(["meta.json", "algorithm.pt", "/x"]), JSON)
    )
)
def test_any_other_manifest_is_damage_and_no_traceback(value):
    with tempfile.TemporaryDirectory() as folder:
        path = save(Path(folder), 1)
        manifest = json.loads((path / "manifest.json").read_text())
        if isinstance(value, tuple) and value[0] in manifest:
            manifest[value[0]] = value[1]
        elif isinstance(value, tuple):
            manifest["files"][value[0]] = value[1]
        else:
            manifest = value
        (path / "manifest.json").write_text(json.dumps(manifest))
        try:
            said = f"step {checkpoint.read(path).step} of {path}"
        except (DamagedCheckpoint, UserError) as error:
            said = str(error)
        assert str(path) in said


@given(st.sampled_from(["manifest.json", "meta.json", "algorithm.pt"]), st.integers(0), st.binary(max_size=4))
def test_any_other_bytes_are_seen(name, place, other):
    """Some bytes of a file are replaced, taken out or put in."""
    with tempfile.TemporaryDirectory() as folder:
        path = save(Path(folder), 1)
        data = (path / name).read_bytes()
        place %= len(data)
        changed = data[:place] + other + data[place + 1 :]
        (path / name).write_bytes(changed)
        try:
            state = checkpoint.read(path).load("algorithm")
        except (DamagedCheckpoint, UserError):
            assert changed != data
        else:  # nothing changed, or spaces and figures of the manifest that nothing depends on
            assert name == "manifest.json" or changed == data
            assert torch.equal(state["policy"]["w"], STATE["policy"]["w"])


def test_one_under_another_number_is_damage(tmp_path):
    save(tmp_path, 10)
    save(tmp_path, 20).rename(tmp_path / "step_000000000099")
    warnings = []
    assert checkpoint.latest(tmp_path, warnings.append).step == 10
    assert "its checkpoint is of step 20" in warnings[0]


@pytest.mark.parametrize("moment", ["rename", "rmtree"])
def test_a_kill_while_old_ones_are_removed_leaves_whole_ones(tmp_path, monkeypatch, moment):
    class Killed(BaseException):
        pass

    def kill(*args):
        raise Killed

    for step in (1, 2, 3):
        save(tmp_path, step)
    monkeypatch.setattr({"rename": "pathlib.Path.rename", "rmtree": "shutil.rmtree"}[moment], kill)
    with pytest.raises(Killed):
        checkpoint.prune(tmp_path, 1)
    monkeypatch.undo()
    for _, path in checkpoint.steps(tmp_path):
        checkpoint.read(path)
    checkpoint.clear_unfinished(tmp_path)
    checkpoint.prune(tmp_path, 1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step_000000000003"]


def test_latest_is_by_number_not_by_name_or_time(tmp_path):
    save(tmp_path, 1_000_000_000_000)
    save(tmp_path, 999_999_999_999)
    (tmp_path / "step_5").mkdir()
    os.utime(tmp_path / "step_5")
    assert checkpoint.latest(tmp_path, pytest.fail).step == 1_000_000_000_000


@pytest.mark.parametrize("damage", ["cut", "flip", "missing", "no manifest", "empty manifest", "no meta"])
def test_a_damaged_one_is_skipped_with_a_warning(tmp_path, damage):
    save(tmp_path, 10)
    path = save(tmp_path, 20)
    file = path / "algorithm.pt"
    data = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(data[:-10])
    elif damage == "flip":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "missing":
        file.unlink()
    elif damage == "no manifest":
        (path / "manifest.json").unlink()
    elif damage == "empty manifest":
        (path / "manifest.json").write_bytes(b"")
    else:
        (path / "meta.json").unlink()
    warnings = []
    assert checkpoint.latest(tmp_path, warnings.append).step == 10
    assert len(warnings) == 1
    assert "step_000000000020" in warnings[0]
    with pytest.raises(DamagedCheckpoint):
        checkpoint.read(path)


def test_all_damaged_gives_none(tmp_path):
    shutil.rmtree(save(tmp_path, 10) / "nothing", ignore_errors=True)
    (tmp_path / "step_000000000010" / "meta.json").write_text("{}")
    assert checkpoint.latest(tmp_path, lambda text: None) is None
    assert checkpoint.latest(tmp_path / "absent", pytest.fail) is None


def test_a_newer_schema_is_an_error_not_damage(tmp_path):
    path = save(tmp_path, 10)
    (path / "manifest.json").write_text(json.dumps({"schema": 99, "step": 10, "files": {}}))
    with pytest.raises(UserError, match="update metta_fast"):
        checkpoint.latest(tmp_path, pytest.fail)


def test_keeps_the_newest_and_the_best(tmp_path):
    for step, score in [(1, 0.1), (2, 0.9), (3, 0.2), (4, None), (5, 0.3)]:
        save(tmp_path, step, score)
        checkpoint.prune(tmp_path, 2)
    assert [step for step, _ in checkpoint.steps(tmp_path)] == [2, 4, 5]


def test_an_evaluation_counts_more_than_training_returns(tmp_path):
    save(tmp_path, 1, 100.0)
    checkpoint.save(tmp_path, 2, {}, {"score": {"name": "eval/return", "value": 1.0}})
    for step in (3, 4):
        save(tmp_path, step, 50.0)
    checkpoint.prune(tmp_path, 1)
    assert [step for step, _ in checkpoint.steps(tmp_path)] == [2, 4]


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "No space left"), (errno.EROFS, "Read-only"), (errno.EACCES, "denied")],
)
def test_a_full_disk_is_told_and_harms_nothing(tmp_path, monkeypatch, number, words):
    before = save(tmp_path, 10)
    real, calls = os.fsync, []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(UserError, match=words) as caught:
        save(tmp_path, 20)
    assert str(before) in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == [before.name]
    checkpoint.read(before)


def test_a_killed_write_leaves_nothing_that_counts(tmp_path, monkeypatch):
    save(tmp_path, 10)

    class Killed(BaseException):
        pass

    def rename(self, target):
        raise Killed

    monkeypatch.setattr("pathlib.Path.rename", rename)
    with pytest.raises(Killed):
        save(tmp_path, 20)
    monkeypatch.undo()
    assert checkpoint.latest(tmp_path, pytest.fail).step == 10
    checkpoint.clear_unfinished(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step_000000000010"]


def test_later_ones_are_put_aside_on_resume(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    assert len(checkpoint.set_aside(tmp_path, 1)) == 2
    assert [step for step, _ in checkpoint.steps(tmp_path)] == [1]
