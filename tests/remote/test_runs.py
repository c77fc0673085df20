"""Tests whole runs with remote storage: an empty machine continues them, exactly, by name or by URL."""

import os
import shutil

import pytest

import metta_fast
from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.metrics.loggers import read_rows
from metta_fast.storage import checkpoint
from metta_fast.storage.remote.address import parse
from metta_fast.storage.remote.bucket_files import BucketFiles
from metta_fast.storage.remote.cache import is_remote
from metta_fast.storage.remote.files import RemoteError
from metta_fast.storage.remote.lease import Lease
from metta_fast.storage.remote.open_files import open_files
from metta_fast.storage.remote.run_store import RunStore, file_name
from metta_fast.storage.run_folder import RunDir
from tests.run.same import curve, same
from tests.tiny import COUNTER

WORDS = (
    *COUNTER,
    "env.max_steps=16",
    "trainer.deterministic=true",
    "run.min_interval_s=0",
    "run.checkpoint_interval=2",
    "policy.hidden_size=8",
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METTA_FAST_CACHE", str(tmp_path / "cache"))


def train(steps, *words):
    return main(["train", *WORDS, f"trainer.total_timesteps={steps}", *words])


JOB = ("run.name=job", "resume=auto")


def newest(folder):
    return checkpoint.latest(RunDir(folder).checkpoints, pytest.fail)


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_an_empty_machine_continues_by_the_same_command_to_the_same_bits(kind, tmp_path, capfd):
    place = "bucket" if kind == "folder" else "memory://one/runs"
    assert train(2048, "run.name=whole") == 0
    assert train(2048, *JOB, f"run.remote={place}", "run.keep_checkpoints=99") == 0
    assert "uploaded to" in (tmp_path / "runs/job/train.log").read_text()
    store = RunStore(open_files(parse(f"{place}/job")), parse(f"{place}/job"))
    middle = store.steps()[len(store.steps()) // 2]
    store.files.remove(
        [file_name(step) for step in store.steps() if step > middle]
    )  # as if killed after `middle`
    shutil.rmtree(tmp_path / "runs/job")
    assert train(2048, *JOB, f"run.remote={place}") == 0
    a, b = newest(tmp_path / "runs/whole"), newest(tmp_path / "runs/job")
    assert a.step == b.step == 2048
    for name in ("algorithm", "env"):
        same(a.load(name), b.load(name), name)
    assert curve(tmp_path / "runs/whole") == curve(tmp_path / "runs/job")
    assert f"continuing from step {middle}" in (tmp_path / "runs/job/train.log").read_text()
    assert (tmp_path / "runs/job/train.log").read_text().count(
        "metta_fast "
    ) >= 2  # the first session's log came too


def test_a_url_is_enough_to_continue_and_to_use_a_run(tmp_path, capfd):
    assert train(2048, "run.name=job", "run.remote=memory://two/runs") == 0
    shutil.rmtree(tmp_path / "runs")
    assert train(4096, "resume=memory://two/runs/job", "run.dir=other") == 0
    assert newest(tmp_path / "other/job").step == 4096
    shutil.rmtree(tmp_path / "other")
    policy = metta_fast.load_policy("memory://two/runs/job")
    assert "4,096 steps" in policy.describe()["trained"]
    assert main(["eval", "memory://two/runs/job", "--episodes", "4", "--json"]) == 0
    assert main(["export", "memory://two/runs/job", "--out", "policy.pt"]) == 0
    assert train(512, "run.name=tuned", "init_from=memory://two/runs/job") == 0
    assert main(["train", "resume=memory://two/runs/job", "--explain"]) == 0
    assert not (tmp_path / "runs/job").exists()


def test_one_state_is_continued_from_and_later_ones_are_put_aside(tmp_path):
    assert train(2048, "run.name=job", "run.remote=bucket", "run.keep_checkpoints=9") == 0
    first = sorted((tmp_path / "bucket/job/states").iterdir())[-3]
    step = int(first.stem.removeprefix("step_"))
    shutil.rmtree(tmp_path / "runs")
    assert train(step, f"resume={tmp_path}/bucket/job/states/{first.stem}") == 0
    assert newest(tmp_path / "runs/job").step == step
    names = sorted(path.name for path in (tmp_path / "bucket/job/states").iterdir())
    assert names[-1] == first.name
    assert len([name for name in names if name.startswith("aside-")]) == 2


def test_auto_without_a_name_takes_the_run_that_was_uploaded_last(tmp_path):
    assert train(512, "run.name=b", "run.remote=bucket") == 0
    assert train(512, "run.name=a", "run.remote=bucket") == 0
    shutil.rmtree(tmp_path / "runs")
    assert train(1024, "resume=auto", "run.remote=bucket") == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]
    assert newest(tmp_path / "runs/a").step == 1024


def test_the_newer_of_local_and_remote_state_is_continued_from(tmp_path):
    assert train(512, *JOB, "run.remote=bucket") == 0
    shutil.copytree(tmp_path / "runs", tmp_path / "older")
    assert train(2048, *JOB, "run.remote=bucket") == 0
    assert train(2560, *JOB, "run.dir=older") == 0  # run.remote is in its configuration
    log = (tmp_path / "older/job/train.log").read_text()
    assert "continuing from step 2048" in log
    epochs = [row["train/epoch"] for row in read_rows(tmp_path / "older/job/metrics.jsonl")]
    assert epochs == list(range(1, len(epochs) + 1))


def test_a_killed_first_session_without_a_state_begins_again(tmp_path):
    store = RunStore(open_files(parse("bucket/job")), parse("bucket/job"))
    store.write_id("a" * 32)
    store.files.write("files/id", b"a" * 32 + b"\n")
    assert train(512, *JOB, "run.remote=bucket") == 0
    assert (tmp_path / "runs/job/id").read_text().strip() == "a" * 32
    assert store.steps()[-1] == 512


def code(capfd, *words):
    capfd.readouterr()
    found = main(list(words))
    err = capfd.readouterr().err
    assert "Traceback" not in err
    return found, err


def test_a_folder_in_use_is_refused_in_one_line(tmp_path, capfd):
    assert train(512, *JOB, "run.remote=bucket") == 0
    files = open_files(parse("bucket/job"))
    live = Lease(files, "lease.json", "", "x")
    live.take()
    for words in (JOB, ("resume=bucket/job",)):
        rc, err = code(
            capfd, "train", *WORDS, "trainer.total_timesteps=1024", *words, "run.remote=bucket", "run.dir=new"
        )
        assert rc == 2
        assert len(err.splitlines()) == 1
        assert "is in use by process" in err
        assert not (tmp_path / "new/job").exists()
    live.release()
    assert train(1024, *JOB, "run.remote=bucket", "run.dir=new") == 0


def test_another_run_of_the_same_name_is_refused(tmp_path, capfd):
    assert train(512, "run.name=job", "run.remote=bucket") == 0
    rc, err = code(
        capfd,
        "train",
        *WORDS,
        "trainer.total_timesteps=512",
        "run.name=job",
        "run.remote=bucket",
        "run.dir=new",
    )
    assert rc == 2
    assert "holds a run already; continue it with resume=auto run.name=job" in err
    assert not (tmp_path / "new/job").exists()
    assert train(512, "run.name=job", "run.dir=new") == 0
    rc, err = code(
        capfd, "train", *WORDS, "trainer.total_timesteps=1024", *JOB, "run.remote=bucket", "run.dir=new"
    )
    assert rc == 2
    assert "is in use by another run than" in err


def broken(kind, text):
    def ask(self, method, *words, **options):
        raise RemoteError(kind, text)

    return ask


def test_a_bucket_without_rights_is_one_line(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(BucketFiles, "_ask", broken("denied", "403 Forbidden"))
    for words in (("run.name=job",), JOB):
        rc, err = code(
            capfd, "train", *WORDS, "trainer.total_timesteps=512", *words, "run.remote=memory://no/runs"
        )
        assert rc == 2
        assert "run.remote=memory://no/runs/job: access is denied (403 Forbidden)" in err
        assert not (tmp_path / "runs/job").exists()


def test_a_bucket_that_does_not_answer_ends_a_new_run_with_1(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(BucketFiles, "_ask", broken("failed", "timeout"))
    for words in (("run.name=job",), JOB, ("resume=memory://no/runs/job",)):
        rc, err = code(
            capfd, "train", *WORDS, "trainer.total_timesteps=512", *words, "run.remote=memory://no/runs"
        )
        assert rc == 1
        assert err.count("\n") == 1
        assert "does not answer (timeout)" in err
        assert not (tmp_path / "runs/job").exists()


def test_a_bucket_that_does_not_answer_holds_no_local_run_up(tmp_path, capfd, monkeypatch):
    assert train(512, *JOB, "run.remote=memory://three/runs") == 0
    with monkeypatch.context() as patch:
        patch.setattr(BucketFiles, "_ask", broken("failed", "timeout"))
        patch.setattr("metta_fast.run.run_writer.QUIET_UPLOAD_S", 0.5)
        assert train(1024, *JOB, "run.remote=memory://three/runs") == 0
    out = capfd.readouterr().err
    assert "The run continues from the local state" in out
    assert "not uploaded to memory://three/runs/job: the state of step 1024" in out
    assert train(1024, *JOB) == 0  # trained already: uploads the rest
    shutil.rmtree(tmp_path / "runs")
    assert train(1536, *JOB, "run.remote=memory://three/runs") == 0
    assert "continuing from step 1024" in (tmp_path / "runs/job/train.log").read_text()


def test_no_key_is_stored_or_shown(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "averysecretkey")
    rc, err = code(capfd, "train", *WORDS, "run.remote=s3://AKIAAAAAAAAAAAAAAAAA:averysecretkey@bucket/x")
    assert rc == 2
    assert "averysecret" not in err
    monkeypatch.setattr(
        BucketFiles, "_ask", broken("failed", "key averysecretkey at http://u:averysecretkey@host")
    )
    rc, err = code(capfd, "train", *WORDS, "run.remote=memory://no/runs", "run.name=job")
    assert "averysecret" not in err
    for place, _, names in os.walk(tmp_path):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                assert b"averysecret" not in file.read()


def test_files_with_unsafe_names_are_not_fetched(tmp_path):
    assert train(512, "run.name=job", "run.remote=memory://four/runs") == 0
    files = open_files(parse("memory://four/runs/job"))
    files.write("files/.bashrc", b"x")
    files.write("files/checkpoints/step_000000999999/x", b"x")
    shutil.rmtree(tmp_path / "runs")
    assert train(1024, *JOB, "run.remote=memory://four/runs") == 0
    assert not (tmp_path / "runs/job/.bashrc").exists()
    assert "unsafe name" in (tmp_path / "runs/job/train.log").read_text()


def test_python_continues_and_says_the_same(tmp_path):
    result = metta_fast.train(
        env="counter", hardware="cpu", env__num_envs=8, trainer__batch_size=256, trainer__bptt_horizon=16,
        trainer__minibatch_size=256, trainer__total_timesteps=512, run__name="job", run__remote="memory://five/runs",
        run__dashboard="none", run__tensorboard=False,
    )  # fmt: skip
    assert result.steps == 512
    shutil.rmtree(tmp_path / "runs")
    result = metta_fast.train(
        resume="memory://five/runs/job", trainer__total_timesteps=1024, run__dashboard="none"
    )
    assert result.steps == 1024
    with pytest.raises(UserError, match="no run is kept"):
        metta_fast.train(resume="memory://five/runs/nonesuch")
    with pytest.raises(UserError, match="no run is kept"):
        metta_fast.load_policy("memory://five/runs/nonesuch")


def test_a_run_of_the_local_layout_is_no_remote_one(tmp_path):
    assert train(512, "run.name=job", "run.remote=bucket") == 0
    assert is_remote("bucket/job")
    assert is_remote("bucket/job/states/step_000000000512")
    assert not is_remote("runs/job")
    assert not is_remote("job")
