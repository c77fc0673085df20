"""Tests the store of a run: an upload that ends anywhere leaves the states before it, and nothing is uploaded twice."""

import random

import pytest

from metta_fast.storage.remote import run_store
from metta_fast.storage.remote.fetch import DamagedPart, fetch_state, newest
from metta_fast.storage.remote.manifest import DamagedManifest
from metta_fast.storage.run_folder import RunDir
from tests.remote.places import RUN, Fault, Switch, checkpoint_folder, files_of, store

KINDS = pytest.mark.parametrize("kind", ["folder", "memory"])


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(run_store, "PART_BYTES", 100)


def content(step):
    return random.Random(step).randbytes(950)


def save(to, folder, step, score=None, extra=b""):
    path = checkpoint_folder(folder, step, content(step) + extra, score)
    given = None if score is None else {"name": "env/return", "value": score}
    return to.save(step, files_of(path), RUN, given)


def fetched(of, folder, after=-1):
    told = []
    run = RunDir(folder / "fetched")
    path = newest(of, after, told.append, lambda state: fetch_state(of, state, run))
    return path, told


@KINDS
def test_a_state_comes_back(kind, tmp_path):
    to = store(kind, tmp_path)
    save(to, tmp_path / "a", 7)
    path, told = fetched(to, tmp_path)
    assert told == []
    assert path.name == "step_000000000007"
    assert (path / "algorithm.pt").read_bytes() == content(7)
    assert {file.name for file in path.iterdir()} == {"algorithm.pt", "meta.json", "manifest.json"}
    assert fetched(to, tmp_path, after=7) == (None, [])


@KINDS
def test_an_upload_that_ends_at_any_request_leaves_the_state_before(kind, tmp_path):
    count = Switch()
    save(store(kind, tmp_path / "count", count), tmp_path / "count", 8)
    writes = [name for name in count.names if name.startswith("write")]
    assert len(writes) == 13  # 10 parts, two small files, the manifest
    assert writes[-1].startswith("write states/")
    for stop in range(len(writes) - 1):  # manifest.json is the same in both states
        folder = tmp_path / str(stop)
        seen = []

        def fail(method, name, seen=seen, stop=stop):
            if method == "write" and "on" in seen:
                if len(seen) == stop + 1:
                    raise Fault
                seen.append(name)

        to = store(kind, folder, fail)
        save(to, folder / "a", 7)
        seen.append("on")
        with pytest.raises(Fault):
            save(to, folder / "b", 8)
        again = run_store.RunStore(to.files.files, to.address)
        assert again.steps() == [7]
        assert fetched(again, folder)[0].name == "step_000000000007"
        there = len(again.parts())
        save(again, folder / "c", 8)
        assert len(again.parts(again=True)) - there == 11 - stop  # what was uploaded is used
        assert (fetched(again, folder)[0] / "algorithm.pt").read_bytes() == content(8)


@KINDS
def test_what_is_there_is_not_uploaded_again(kind, tmp_path):
    count = Switch()
    to = store(kind, tmp_path, count)
    save(to, tmp_path / "a", 7)
    count.names.clear()
    path = checkpoint_folder(tmp_path / "b", 8, content(7))
    to.save(8, files_of(path), RUN, None)
    written = [name for name in count.names if name.startswith("write parts")]
    assert len(written) == 1  # meta.json


@KINDS
@pytest.mark.parametrize("what", ["part cut", "part altered", "part gone", "manifest cut"])
def test_a_damaged_state_is_skipped_for_the_one_before(kind, what, tmp_path):
    to = store(kind, tmp_path)
    save(to, tmp_path / "a", 7)
    state = save(to, tmp_path / "b", 8)
    name = f"parts/{state.files['algorithm.pt'][3].sha256}"
    files = to.files.files
    if what == "part gone":
        files.remove([name])
    elif what == "manifest cut":
        files.write(run_store.file_name(8), files.read(run_store.file_name(8))[:-40])
    else:
        data = files.read(name)
        files.write(name, data[:-1] if what == "part cut" else b"x" + data[1:])
    again = run_store.RunStore(files, to.address)
    path, told = fetched(again, tmp_path)
    assert path.name == "step_000000000007"
    assert len(told) == 1
    assert "step 8" in told[0]
    assert not list((tmp_path / "fetched" / "checkpoints").glob(".writing*"))


@KINDS
def test_old_states_and_their_parts_are_removed(kind, tmp_path):
    to = store(kind, tmp_path)
    for step, score in ((1, 0.1), (2, 0.9), (3, 0.2), (4, 0.3), (5, 0.4)):
        save(to, tmp_path / "a", step, score)
        to.prune(2)
    assert to.steps() == [2, 4, 5]  # 2 has the best score
    used = {part.sha256 for step in to.steps() for part in to.state(step).parts()}
    assert set(to.files.sizes("parts")) == used


def test_pruning_that_ends_at_any_request_leaves_complete_states(tmp_path):
    stop = 0
    while True:
        folder, seen = tmp_path / str(stop), []

        def fail(method, name, seen=seen, stop=stop):
            if method == "remove":
                if len(seen) == stop:
                    raise Fault
                seen.append(name)

        to = store("memory", folder, fail)
        for step in (1, 2, 3):
            save(to, folder / "a", step)
        try:
            to.prune(1)
            break
        except Fault:
            again = run_store.RunStore(to.files.files, to.address)
            assert again.steps()[-1] == 3
            for step in again.steps():
                again.state(step)
            again.prune(1)
        stop += 1
    assert stop > 20


def test_later_states_are_put_aside_and_keep_their_parts(tmp_path):
    to = store("memory", tmp_path)
    for step in (1, 2, 3):
        save(to, tmp_path / "a", step)
    assert to.set_aside(1) == [2, 3]
    assert to.steps() == [1]
    save(to, tmp_path / "b", 2, extra=b"other")
    to.prune(1)
    assert to.steps() == [2]
    aside = sorted(name for name in to.files.sizes("states") if name.startswith("aside-"))
    assert len(aside) == 2
    to.files.write(run_store.file_name(3), to.files.read(f"states/{aside[1]}"))
    to.state(3)  # raises DamagedManifest if a part is gone


def test_another_step_in_a_manifest_is_damage(tmp_path):
    to = store("memory", tmp_path)
    save(to, tmp_path / "a", 1)
    to.files.write(run_store.file_name(5), to.files.read(run_store.file_name(1)))
    with pytest.raises(DamagedManifest, match="step 1"):
        to.state(5)


def test_growing_metrics_are_uploaded_once_and_end_with_a_whole_row(tmp_path, monkeypatch):
    monkeypatch.setattr(run_store, "GROWING_BYTES", 40)
    to = store("memory", tmp_path)
    rows = tmp_path / "metrics.jsonl"
    rows.write_bytes(b"".join(b'{"a": %d}\n' % i for i in range(20)) + b'{"a": 2')
    state = to.save(1, [("metrics.jsonl", rows)], RUN, None)
    run = RunDir(tmp_path / "fetched")
    fetch_state(to, state, run)
    assert run.metrics.read_bytes() == rows.read_bytes()[:-7]
    before = len(to.parts())
    rows.write_bytes(rows.read_bytes() + b'0}\n{"a": 21}\n')
    to.save(2, [("metrics.jsonl", rows)], RUN, None)
    assert len(to.parts(again=True)) - before == 2  # the last part, which has grown, and a new one


def test_a_part_that_goes_while_it_is_fetched_is_told(tmp_path):
    to = store("memory", tmp_path)
    state = save(to, tmp_path / "a", 1)
    to.files.remove([f"parts/{state.files['algorithm.pt'][0].sha256}"])
    with pytest.raises(DamagedPart, match="is gone"):
        fetch_state(to, state, RunDir(tmp_path / "fetched"))
