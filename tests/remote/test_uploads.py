"""Tests background uploads: they never hold training up, survive a failing bucket, and say what is not uploaded."""

import random
import time

import pytest

from metta_fast.storage.remote import lease as lease_module
from metta_fast.storage.remote import run_store, uploads
from metta_fast.storage.remote.files import RemoteError
from metta_fast.storage.remote.lease import Lease
from metta_fast.storage.remote.uploads import Uploads
from metta_fast.storage.run_folder import RunDir
from tests.remote.places import RUN, Switch, checkpoint_folder, store


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(uploads, "WAITS_S", (0.02, 0.05))
    monkeypatch.setattr(uploads, "FILES_S", 0.1)
    monkeypatch.setattr(run_store, "PART_BYTES", 100)
    monkeypatch.setattr(lease_module, "RENEW_S", 0.05)


class Run:
    """A run's folder with uploads; `switch` is the bucket's."""

    def __init__(self, folder, saved=-1, keep=3, at=None):
        self.switch = Switch()
        self.folder = RunDir(folder / "job")
        self.folder.checkpoints.mkdir(parents=True, exist_ok=True)
        self.folder.config.write_text("run: {}\n")
        self.store = at or store("folder", folder, self.switch)
        self.store.files.before = self.switch
        self.lease = Lease(self.store.files, "lease.json", RUN, str(self.store.address))
        self.uploads = Uploads(self.store, self.lease, self.folder, RUN, saved=saved, keep=keep)

    def save(self, step, size=950, score=None):
        path = checkpoint_folder(self.folder.checkpoints, step, random.Random(step).randbytes(size), score)
        self.uploads.state(path, step)
        return path

    def fresh(self):
        """The store as another machine sees it."""
        return run_store.RunStore(self.store.files.files, self.store.address)

    def until(self, true, seconds=10.0):
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, self.switch.names[-5:]
            time.sleep(0.005)


@pytest.fixture
def made(tmp_path):
    runs = []

    def make(*args, **kwargs):
        runs.append(Run(tmp_path, *args, **kwargs))
        return runs[-1]

    yield make
    for run in runs:
        run.switch.seconds = 0.0
        run.uploads.close()


def test_states_and_files_go_up(made):
    run = made()
    run.save(1)
    run.until(lambda: run.fresh().steps() == [1])
    (run.folder.path / "replays").mkdir()
    (run.folder.path / "replays" / "a.html").write_text("x")
    run.until(lambda: "replays/a.html" in run.fresh().files.sizes("files"))
    assert set(run.fresh().files.sizes("files")) == {"config.yaml", "replays/a.html"}
    (run.folder.path / "replays" / "a.html").unlink()
    run.until(lambda: "replays/a.html" not in run.fresh().files.sizes("files"))
    assert run.uploads.news() == []
    assert run.fresh().run_id() == RUN


def test_the_newest_state_replaces_those_that_wait_and_nothing_waits_for_it(made):
    run = made()
    run.until(lambda: run.fresh().run_id() == RUN)
    run.switch.seconds = 0.02
    began = time.monotonic()
    for step in range(1, 21):
        run.save(step)
    assert time.monotonic() - began < 0.5
    finished, text = run.uploads.finish(10.0, 5.0)
    assert finished, text
    assert run.fresh().steps()[-1] == 20
    uploaded = {name for name in run.switch.names if name.startswith("write states/")}
    assert len(uploaded) <= 3
    assert text.startswith("uploaded to")
    assert "step 20" in text


def test_a_state_on_its_way_is_held_and_given_free(made):
    run = made()
    run.until(lambda: run.fresh().run_id() == RUN)
    run.switch.seconds = 0.05
    path = run.save(1)
    time.sleep(0.02)
    assert path in run.uploads.held()
    run.switch.seconds = 0.0
    run.until(lambda: run.fresh().steps() == [1])
    run.until(lambda: not run.uploads.held())


def test_a_failing_bucket_is_told_once_and_once_when_it_works_again(made):
    run = made()
    run.save(1)
    run.until(lambda: run.fresh().steps() == [1])
    run.switch.error = RemoteError("failed", "HTTP 500")
    run.save(2)
    time.sleep(0.5)
    run.save(3)
    time.sleep(0.3)
    news = run.uploads.news()
    assert len(news) == 1
    assert "fail (HTTP 500); the training continues" in news[0]
    run.switch.error = None
    run.until(lambda: run.fresh().steps() == [1, 3])
    run.until(lambda: any("work again" in text for text in run.uploads.news()))


def test_one_failure_alone_is_not_told(made):
    run = made()
    run.until(lambda: run.fresh().run_id() == RUN)
    failures = []

    def once(method, name):
        if method == "write" and not failures:
            failures.append(name)
            raise RemoteError("failed", "HTTP 503")

    run.store.files.before = once
    run.save(1)
    run.until(lambda: run.fresh().steps() == [1])
    assert failures
    assert run.uploads.news() == []


@pytest.mark.parametrize("kind", ["failed", "denied", "missing"])
def test_the_end_says_what_is_not_uploaded(made, kind):
    run = made()
    run.save(1)
    run.until(lambda: run.fresh().steps() == [1])
    run.switch.error = RemoteError(kind, "HTTP 500")
    run.save(2)
    (run.folder.path / "metrics.jsonl").write_text("{}\n")
    began = time.monotonic()
    finished, text = run.uploads.finish(30.0, 0.5)
    assert time.monotonic() - began < 2.0
    assert not finished
    assert "the state of step 2 (the newest there: step 1)" in text
    assert "metrics.jsonl" in text
    assert "HTTP 500" in text
    assert f"resume={run.folder.path}" in text


def test_a_hanging_bucket_ends_with_its_time(made):
    run = made()
    run.save(1)
    run.until(lambda: run.fresh().steps() == [1])
    run.switch.seconds = 5.0
    run.save(2)
    began = time.monotonic()
    finished, text = run.uploads.finish(0.5, 60.0)
    assert not finished
    assert "step 2" in text
    run.uploads.close()
    assert time.monotonic() - began < 4.0


def test_at_the_end_the_newest_state_comes_before_an_older_one_on_its_way(made):
    run = made()
    run.until(lambda: run.fresh().run_id() == RUN)
    run.switch.seconds = 0.02
    run.save(1, size=100_000)  # 1000 parts, 20 s
    time.sleep(0.3)
    run.save(2, size=200)
    assert run.uploads.finish(10.0, 5.0)[0]
    assert run.fresh().steps() == [2]


def test_the_end_may_be_hurried(made):
    run = made()
    run.until(lambda: run.fresh().run_id() == RUN)
    run.switch.seconds = 0.1
    run.save(1, size=100_000)
    began = time.monotonic()
    assert not run.uploads.finish(100.0, 50.0, lambda: time.monotonic() - began > 0.3)[0]
    assert time.monotonic() - began < 1.5


def test_the_best_state_goes_up_at_the_end_if_it_was_left_out(made):
    run = made(keep=1)
    run.until(lambda: run.fresh().run_id() == RUN)
    run.switch.error = RemoteError("failed", "HTTP 500")
    run.save(1, score=0.9)
    run.save(2, score=0.1)
    run.switch.error = None
    assert run.uploads.finish(10.0, 5.0)[0]
    assert run.fresh().steps() == [1, 2]


def test_what_was_not_uploaded_goes_up_in_the_next_session(made):
    run = made()
    run.switch.error = RemoteError("failed", "down")
    run.save(5)
    assert not run.uploads.finish(0.3, 0.3)[0]
    run.uploads.close()
    run.switch.error = None
    again = made(saved=5, at=run.store)
    finished, text = again.uploads.finish(10.0, 5.0)
    assert finished, text
    assert again.fresh().steps() == [5]


def test_states_after_the_one_continued_from_are_put_aside(made):
    run = made()
    for step in (1, 2):
        run.save(step)
        run.until(lambda step=step: step in run.fresh().steps())
    run.uploads.close()
    again = made(saved=1, at=run.store)
    again.until(lambda: again.fresh().steps() == [1])
    assert "put aside" in again.uploads.news()[0]


def test_a_session_that_lost_its_lease_writes_no_more(made):
    run = made()
    run.save(1)
    run.until(lambda: run.fresh().steps() == [1])
    run.store.files.files.write("lease.json", b'{"session": "other", "process": "process 3 on elsewhere"}')
    run.save(2)
    run.until(lambda: any("process 3 on elsewhere" in text for text in run.uploads.news()))
    finished, text = run.uploads.finish(5.0, 5.0)
    assert not finished
    assert "step 2" in text
    assert run.fresh().steps() == [1]


def test_an_error_of_any_kind_ends_nothing(made):
    run = made()
    run.until(lambda: run.fresh().run_id() == RUN)
    run.switch.error = ZeroDivisionError("a bug")
    run.save(1)
    run.until(lambda: any("ZeroDivisionError: a bug" in text for text in run.uploads.news()))
    run.switch.error = None
    assert run.uploads.finish(5.0, 5.0)[0]


def test_a_checkpoint_that_was_deleted_is_left_out(made):
    run = made()
    run.until(lambda: run.fresh().run_id() == RUN)
    run.switch.seconds = 0.05
    path = run.save(1)
    for file in path.iterdir():
        file.unlink()
    run.switch.seconds = 0.0
    run.until(lambda: any("is gone" in text for text in run.uploads.news()))
    run.save(2)
    run.until(lambda: run.fresh().steps() == [2])
