"""Tests run.remote with the package s3fs and moto's S3 server, which are in .venv/remote (pyproject: remote_tests)."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.same import curve, same
from tests.tiny import COUNTER

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = Path(sys.prefix) / "remote"
pytestmark = pytest.mark.skipif(
    not (PACKAGES / "moto").is_dir() or not (PACKAGES / "s3fs").is_dir(),
    reason="no s3fs and moto in .venv/remote",
)
SECRET = "a-secret-key-of-tests"
WORDS = (
    *COUNTER,
    "env.max_steps=16",
    "trainer.deterministic=true",
    "run.min_interval_s=0",
    "run.checkpoint_interval=2",
    "run.name=job",
    "run.remote=s3://runs/some/where",
)


class S3:
    """moto's server in a process, with faults, and trainings that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.begin()
        made = "import boto3; boto3.client('s3').create_bucket(Bucket='runs')"
        subprocess.run([sys.executable, "-c", made], env=self.variables(), check=True, timeout=60)

    def begin(self) -> None:
        """Starts the server, empty, on the port it had before."""
        (self.folder / "port").unlink(missing_ok=True)
        words = [sys.executable, "-m", "tests.remote.s3_server", self.folder, str(self.port)]
        self.process = subprocess.Popen(words, env=self.variables(), stderr=subprocess.DEVNULL, cwd=ROOT)
        until = time.monotonic() + 60
        while not (self.folder / "port").exists():
            assert time.monotonic() < until
            assert self.process.poll() is None
            time.sleep(0.05)
        self.port = int((self.folder / "port").read_text())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()

    def fault(self, what: str) -> None:
        """500, 403, slow SECONDS or nothing."""
        (self.folder / "fault.part").write_text(what)
        (self.folder / "fault.part").rename(self.folder / "fault")

    def variables(self) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": f"{PACKAGES}:{ROOT}",
            "OMP_NUM_THREADS": "1",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_EC2_METADATA_DISABLED": "true",
            "METTA_FAST_CACHE": str(self.folder / "cache"),
        }

    def start(self, here: Path, steps: int, *words: str) -> subprocess.Popen[str]:
        here.mkdir(exist_ok=True)
        words = ("train", *WORDS, f"trainer.total_timesteps={steps}", *words)
        return subprocess.Popen(
            [sys.executable, "-m", "metta_fast", *words],
            env=self.variables(), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def train(self, here: Path, steps: int, *words: str) -> tuple[int, str]:
        """Trains to the end; its exit code and output."""
        process = self.start(here, steps, *words)
        text = process.communicate(timeout=100)[0]
        assert SECRET not in text
        assert "Traceback" not in text, text
        return process.returncode, text

    def steps(self, place: str = "some/where/job") -> list[int]:
        """The steps of the states in the bucket."""
        code = "import boto3, json; found = boto3.client('s3').list_objects_v2(Bucket='runs', Prefix='%s/states/')"
        code = code % place + "; print(json.dumps([one['Key'] for one in found.get('Contents', [])]))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=self.variables(),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return [int(match[1]) for key in json.loads(done.stdout) if (match := re.search(r"/step_(\d+)", key))]


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    server = S3(tmp_path_factory.mktemp("s3"))
    yield server
    server.end()


@pytest.fixture(autouse=True)
def no_fault(s3):
    s3.fault("")
    yield
    s3.fault("")


def newest(folder):
    return checkpoint.latest(RunDir(folder / "runs" / "job").checkpoints, pytest.fail)


def test_killed_sessions_on_empty_machines_end_with_the_same_bits(s3, tmp_path):
    code, text = s3.train(tmp_path / "whole", 12_000, "run.remote=null")
    assert code == 0, text
    here, last, kills = tmp_path / "here", 0, 0
    s3.fault("slow 0.01")
    for _ in range(2):
        process = s3.start(here, 12_000, "resume=auto")
        log, until = here / "runs/job/train.log", time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            if log.exists() and "first update" in log.read_text().rpartition("metta_fast ")[2]:
                break
            time.sleep(0.01)
        time.sleep(random.uniform(0.1, 0.6))
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        process.stdout.close()
        shutil.rmtree(here)
        there = s3.steps()
        assert max(there, default=0) >= last
        last = max(there, default=0)
    assert kills >= 1
    s3.fault("")
    code, text = s3.train(here, 12_000, "resume=auto")
    assert code == 0, text
    assert not last or "continuing from step" in text
    a, b = newest(tmp_path / "whole"), newest(here)
    assert a.step == b.step == 12_000
    for name in ("algorithm", "env"):
        same(a.load(name), b.load(name), name)
    assert curve(tmp_path / "whole/runs/job") == curve(here / "runs/job")
    assert s3.steps()[-1] == 12_000


def test_a_bucket_that_fails_meanwhile_loses_nothing(s3, tmp_path):
    process = s3.start(tmp_path, 12_000, "run.remote=s3://runs/fails", "run.dashboard=plain")
    until = time.monotonic() + 60
    while not s3.steps("fails/job"):
        assert time.monotonic() < until
        assert process.poll() is None, process.stdout.read()
    s3.fault("500")
    log = tmp_path / "runs/job/train.log"
    while "trained to" not in log.read_text():
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(3.0)
    process.send_signal(signal.SIGTERM)  # ends the waiting for uploads
    text = process.communicate(timeout=100)[0]
    s3.fault("")
    assert process.returncode == 0, text
    assert "trained to 12000 steps" in text
    if "not uploaded" in text:  # it was still training when the faults began
        assert "the state of step 12000" in text
        code, text = s3.train(tmp_path, 12_000, "run.remote=s3://runs/fails", "resume=auto")
        assert code == 0, text
    assert "uploaded to s3://runs/fails/job" in text
    assert s3.steps("fails/job")[-1] == 12_000


@pytest.mark.parametrize(
    ("fault", "where", "code", "says"),
    [
        ("403", "s3://runs/x", 2, "run.remote=s3://runs/x/job: access is denied"),
        ("", "s3://nonesuch/x", 2, "run.remote=s3://nonesuch/x/job: there is no such bucket"),
        ("500", "s3://runs/x", 1, "s3://runs/x/job does not answer"),
    ],
)
def test_what_is_wrong_at_the_start_is_one_line(s3, tmp_path, fault, where, code, says):
    s3.fault(fault)
    began = time.monotonic()
    found, text = s3.train(tmp_path, 512, f"run.remote={where}")
    assert found == code, text
    assert len(text.splitlines()) == 1, text
    assert says in text
    assert not (tmp_path / "runs/job").exists()
    assert time.monotonic() - began < 40
