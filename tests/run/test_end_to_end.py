"""Tests whole PPO runs on the counter: stopped, killed, resumed; exact where that is promised."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise

import numpy as np
import psutil
import pytest

from metta_fast.cli import main
from metta_fast.metrics.loggers import read_rows
from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.same import numbers, same
from tests.tiny import QUIET, named

SIZES = [
    *QUIET,
    "env=counter",
    "env.num_envs=16",
    "env.max_steps=32",
    "trainer.batch_size=512",
    "trainer.minibatch_size=128",
    "trainer.bptt_horizon=16",
    "policy.hidden_size=16",
    "run.min_interval_s=0",
    "run.checkpoint_interval=5",
]
EPOCH = 16 * 32


def words(folder, *more):
    return ["train", *SIZES, *named(folder), *more]


def command(folder, *more):
    return [sys.executable, "-m", "metta_fast", *words(folder, *more)]


def rows(folder):
    return list(read_rows(folder / "r" / "metrics.jsonl"))


def newest(folder):
    return checkpoint.latest(RunDir(folder / "r").checkpoints, pytest.fail)


def check_rows(folder, last=None):
    """Epochs follow each other without a gap or a double, and steps rise."""
    found = rows(folder)
    assert [row["train/epoch"] for row in found] == list(range(1, len(found) + 1))
    assert all(a["train/steps"] < b["train/steps"] for a, b in pairwise(found))
    if last is not None:
        assert found[-1]["train/steps"] == last
    return found


def signal_after(folder, epochs, signum):
    """Send this process a signal at a random moment soon after the run logged so many epochs."""

    def watch():
        deadline = time.monotonic() + 60
        while len(rows(folder)) < epochs and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.05))
        os.kill(os.getpid(), signum)

    watcher = threading.Thread(target=watch)
    watcher.start()
    return watcher


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_a_deterministic_run_that_was_stopped_equals_an_unbroken_one_bit_for_bit(tmp_path, backend):
    more = [
        "trainer.deterministic=true",
        f"vector.backend={backend}",
        "trainer.total_timesteps=15000",
        "policy.core=lstm",
        "run.checkpoint_interval=0",
    ]
    assert main(words(tmp_path / "whole", *more)) == 0
    for epochs in (4, 9, 16):
        watcher = signal_after(tmp_path / "broken", epochs, signal.SIGTERM)
        assert main(words(tmp_path / "broken", *more, "resume=auto")) == 143
        watcher.join()
    assert main(words(tmp_path / "broken", *more, "resume=auto")) == 0
    whole, broken = newest(tmp_path / "whole"), newest(tmp_path / "broken")
    assert whole.step == broken.step >= 15000
    same(whole.load("algorithm"), broken.load("algorithm"))
    same(whole.load("env"), broken.load("env"))
    for a, b in zip(check_rows(tmp_path / "whole"), check_rows(tmp_path / "broken")):
        assert numbers(a) == numbers(b)


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_process_stopped_at_a_random_moment_goes_on_from_there(tmp_path, signum, code):
    more = ["vector.backend=workers", "vector.num_workers=2", "trainer.total_timesteps=10_000_000"]
    log = open(tmp_path / "out.txt", "w+")  # noqa: SIM115 - closed below
    process = subprocess.Popen(command(tmp_path, *more), stdout=log, stderr=log)
    deadline = time.monotonic() + 60
    while not (tmp_path / "r" / "metrics.jsonl").exists() or len(rows(tmp_path)) < 12:
        assert time.monotonic() < deadline
        assert process.poll() is None, log.seek(0) or log.read()
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    time.sleep(random.random())
    asked = time.monotonic()
    process.send_signal(signum)
    assert process.wait(20) == code
    assert time.monotonic() - asked < 10
    psutil.wait_procs(children, timeout=10)
    assert [child for child in children if child.is_running()] == []
    log.seek(0)
    text = log.read()
    log.close()
    assert "Traceback" not in text, text
    before = rows(tmp_path)
    saved = newest(tmp_path).step
    if signum != signal.SIGKILL:
        assert saved == before[-1]["train/steps"]
        assert f"at step {saved}; continue with resume=" in text
    more[-1] = f"trainer.total_timesteps={saved + 5 * EPOCH}"
    assert main(words(tmp_path, *more, "resume=auto")) == 0
    after = check_rows(tmp_path)
    kept = [row for row in before if row["train/steps"] <= saved]
    assert after[: len(kept)] == kept
    assert after[-1]["train/steps"] >= saved + 5 * EPOCH


def test_a_signal_to_the_whole_process_group_saves_too(tmp_path):
    """As `kill -TERM -pgid`, systemd and batch systems send it: to the workers as well."""
    more = ["vector.backend=workers", "vector.num_workers=2", "trainer.total_timesteps=10_000_000"]
    process = subprocess.Popen(
        command(tmp_path, *more), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "r" / "metrics.jsonl").exists() or len(rows(tmp_path)) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    _, text = process.communicate(timeout=20)
    assert process.returncode == 143, text
    assert "Traceback" not in text
    assert newest(tmp_path).step == check_rows(tmp_path)[-1]["train/steps"]


def test_evaluations_do_not_change_the_training(tmp_path):
    more = ["trainer.total_timesteps=6000", "vector.backend=serial", "run.keep_checkpoints=100"]
    assert main(words(tmp_path / "plain", *more)) == 0
    more += ["run.evaluate_interval=4", "run.evaluate_episodes=3"]
    assert main(words(tmp_path / "evaluated", *more)) == 0
    plain, evaluated = newest(tmp_path / "plain"), newest(tmp_path / "evaluated")
    same(plain.load("algorithm"), evaluated.load("algorithm"))
    found = [row for row in check_rows(tmp_path / "evaluated") if "eval/return" in row]
    assert [row["train/epoch"] for row in found] == [4, 8, 12]
    for row in found:
        path = tmp_path / "evaluated" / "r" / "checkpoints" / f"step_{row['train/steps']:012d}"
        assert checkpoint.read(path).meta["score"] == {"name": "eval/return", "value": row["eval/return"]}


def test_the_curve_and_the_learning_rate_go_on_unbroken(tmp_path):
    more = [
        "trainer.total_timesteps=60000",
        "vector.backend=serial",
        "trainer.learning_rate=3e-3",
        "env.params.goal=10",
    ]
    watcher = signal_after(tmp_path, 60, signal.SIGINT)
    assert main(words(tmp_path, *more)) == 130
    watcher.join()
    at = newest(tmp_path).meta["epoch"]
    assert main(words(tmp_path, *more, "resume=auto")) == 0
    found = check_rows(tmp_path)
    rates = [row["train/learning_rate"] for row in found]
    assert all(a > b for a, b in pairwise(rates))
    returns = np.array([row.get("env/return", np.nan) for row in found])
    first, before, after = (
        np.nanmean(part) for part in (returns[:10], returns[at - 8 : at], returns[at : at + 8])
    )
    assert before > 1.3 * first
    assert after > 0.9 * before


def test_a_wrong_worker_is_told_with_its_own_traceback_and_exit_code_1(tmp_path, monkeypatch):
    (tmp_path / "breaks.py").write_text(
        "import gymnasium\n"
        "class Breaks(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(0, 1, (2,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    count = 0\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        self.count += 1\n"
        "        if self.count > 100: raise ValueError('the gripper is stuck')\n"
        "        return self.observation_space.sample(), 0.0, False, False, {}\n"
        "def make(config):\n"
        "    return lambda index: Breaks()\n"
    )
    result = subprocess.run(
        [*command(tmp_path / "runs", "vector.backend=workers", "vector.num_workers=2"), "env=breaks:make"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1, result.stderr
    assert "the gripper is stuck" in result.stderr
    assert "in step" in result.stderr
    assert newest(tmp_path / "runs").step > 0


@pytest.mark.parametrize("tail", [b"", b'{"train/steps": 99'])
def test_metrics_cut_in_the_middle_of_a_line_are_told_and_go_on(tmp_path, capfd, tail):
    """A half row after the checkpoint is dropped; one that the disk lost before it is told as well."""
    more = ["trainer.total_timesteps=5000", "vector.backend=serial"]
    assert main(words(tmp_path, *more)) == 0
    path = tmp_path / "r" / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + tail if tail else whole[:-20])
    kept = rows(tmp_path)
    assert main(words(tmp_path, "trainer.total_timesteps=7000", "vector.backend=serial", "resume=auto")) == 0
    told = f"metrics.jsonl is damaged after step {kept[-1]['train/steps']}" in capfd.readouterr().err
    assert told == (not tail)
    found = rows(tmp_path)
    assert found[: len(kept)] == kept
    assert found[len(kept)]["train/epoch"] == kept[-1]["train/epoch"] + (1 if tail else 2)
    assert found[-1]["train/steps"] >= 7000


def test_host_memory_stays_flat_over_a_long_run(tmp_path):
    """Right-behaviour 14: after the first quarter nothing grows by more than a few MB."""
    readings = []

    def watch():
        while not done.wait(0.2):
            readings.append(psutil.Process().memory_info().rss)

    done = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert main(words(tmp_path, "trainer.total_timesteps=100000", "vector.backend=serial")) == 0
    finally:
        done.set()
        watcher.join()
    quarter = len(readings) // 4
    assert max(readings[-quarter:]) - max(readings[quarter : 2 * quarter]) < 8 << 20
