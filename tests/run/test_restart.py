"""Tests workers that die, hang or raise: the run ends and names them, or restarts them and loses one epoch."""

import signal
import sys
import threading
import time

import psutil
import pytest

from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.machine.hardware import Machine
from metta_fast.metrics.loggers import read_rows
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from tests.run.same import curve, same
from tests.run.test_end_to_end import check_rows, newest, words

WORKERS = ["vector.backend=workers", "vector.num_workers=2", "vector.worker_timeout_s=1"]

ENV = """
import os, signal, time
import gymnasium, numpy as np

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, index):
        self.index, self.count = index, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t, self.count = self.t + 1, self.count + 1
        if self.index == 5 and self.count > 100 and may(%(times)d):
            %(what)s
        return np.full(2, self.t %% 7 / 7, np.float32), float(action), self.t == 9, False, {}

def may(times):
    "Misbehave so many times in all."
    for number in range(times):
        try:
            os.close(os.open(f"%(folder)s/{number}", os.O_CREAT | os.O_EXCL))
            return True
        except FileExistsError:
            continue
    return False

def make(config):
    return Env
"""
WRONG = {
    "dies": ("os.kill(os.getpid(), signal.SIGKILL)", r"was killed by SIGKILL"),
    "hangs": ("time.sleep(1000)", "has not replied for 1.0 s (vector.worker_timeout_s)"),
    "raises": ("raise ValueError('the gripper is stuck')", "environment 5 raised"),
}


def train(tmp_path, monkeypatch, what, times, *more):
    (tmp_path / "troubled.py").write_text(ENV % {"what": what, "times": times, "folder": tmp_path})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "troubled", raising=False)
    keys = ["env=troubled:make", "trainer.total_timesteps=8000", *WORKERS, *more]
    return main(words(tmp_path / "runs", *keys))


@pytest.mark.parametrize("how", WRONG)
def test_without_the_option_the_run_ends_and_names_the_worker(tmp_path, monkeypatch, capfd, how):
    what, message = WRONG[how]
    assert train(tmp_path, monkeypatch, what, 1) == 1
    said = capfd.readouterr().err
    assert "error: worker 0 (pid " in said or "error: worker 1 (pid " in said
    assert message in said
    assert "continue with resume=" in said
    assert newest(tmp_path / "runs").step > 0


@pytest.mark.parametrize("how", WRONG)
def test_with_it_the_run_goes_on(tmp_path, monkeypatch, capfd, how):
    what, message = WRONG[how]
    assert train(tmp_path, monkeypatch, what, 2, "vector.restart_workers=3") == 0
    said = capfd.readouterr().err
    assert said.count("warning: worker ") == 2
    assert message in said
    assert "workers restarted (1 of 3, vector.restart_workers); the run continues from step" in said
    assert "workers restarted (2 of 3" in said
    found = check_rows(tmp_path / "runs")
    assert found[-1]["train/steps"] >= 8000
    assert [row["perf/worker_restarts"] for row in found][:: len(found) - 1] == [0, 2]
    assert not [child for child in psutil.Process().children(recursive=True) if "mf-" in child.name()]


def test_no_more_often_than_allowed(tmp_path, monkeypatch, capfd):
    what, _ = WRONG["raises"]
    assert train(tmp_path, monkeypatch, what, 99, "vector.restart_workers=2") == 1
    said = capfd.readouterr().err
    assert (said.count("warning: worker "), said.count("error: worker ")) == (2, 1)
    assert "workers restarted (2 of 2" in said
    assert "The last good state is kept at step" in said


@pytest.mark.parametrize("env", ["counter", "grid"])
def test_a_deterministic_run_is_the_same_bit_for_bit(tmp_path, env):
    """Native or not: workers that somebody kills, again and again, change nothing."""
    more = [f"env={env}", *WORKERS, "trainer.deterministic=true", "trainer.total_timesteps=8000"]
    more += ["policy.core=lstm", "trainer.batch_size=2048", "trainer.minibatch_size=512"]
    assert main(words(tmp_path / "whole", *more)) == 0
    broken, done = tmp_path / "broken", threading.Event()
    killed = []

    def kill():
        me, seen = psutil.Process(), 0
        while not done.is_set() and len(killed) < 2:
            count = len(list(read_rows(broken / "r" / "metrics.jsonl")))
            workers = [p for p in me.children(recursive=True) if p.name().startswith("mf-worker")]
            if count > seen and len(workers) == 2:
                workers[0].send_signal(signal.SIGKILL)
                killed.append(count)
                seen = count
            time.sleep(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        assert main(words(broken, *more, "vector.restart_workers=9")) == 0
    finally:
        done.set()
        killer.join()
    assert killed
    whole, found = newest(tmp_path / "whole"), newest(broken)
    for name in ("algorithm", "env"):
        same(whole.load(name), found.load(name), name)
    assert curve(tmp_path / "whole" / "r") == curve(broken / "r")
    assert check_rows(broken)[-1]["perf/worker_restarts"] >= 1


def test_a_kill_in_the_first_epoch_of_a_resumed_run(tmp_path, monkeypatch, capfd):
    what, _ = WRONG["raises"]
    assert train(tmp_path, monkeypatch, what, 0) == 0
    last = newest(tmp_path / "runs").step
    (tmp_path / "troubled.py").write_text(
        (ENV % {"what": what, "times": 1, "folder": tmp_path}).replace("self.count > 100", "self.count > 3")
    )
    more = ["resume=auto", f"trainer.total_timesteps={last + 1000}", "vector.restart_workers=1"]
    monkeypatch.delitem(sys.modules, "troubled")
    assert main(words(tmp_path / "runs", "env=troubled:make", *WORKERS, *more)) == 0
    assert f"the run continues from step {last} with new episodes" in capfd.readouterr().err
    check_rows(tmp_path / "runs")


def test_a_backend_without_workers_is_told():
    composed = compose(
        ["env=counter", "vector.backend=threads", "vector.restart_workers=1"],
        default_hardware="cpu",
        machine=Machine(cores=2, cores_total=2, memory=8 << 30),
    )
    with pytest.raises(UserError, match=r"vector\.backend=threads has no workers to restart"):
        resolve(composed)
