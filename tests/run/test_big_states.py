"""Tests runs whose workers hold large states: resumed, restarted, and ended by a signal while they load."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import psutil

from metta_fast.storage import checkpoint
from metta_fast.storage.run_folder import RunDir
from tests.run.test_end_to_end import EPOCH, check_rows, command, newest
from tests.tiny import QUIET, named

WORKERS = ["vector.backend=workers", "vector.num_workers=2"]
ENV = """
import os, time
import gymnasium, numpy as np

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, index):
        self.index, self.t, self.state = index, 0, np.full(100_000, index, np.uint8)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        if self.index == 5 and self.t == 100 and not os.path.exists("%(folder)s/died"):
            open("%(folder)s/died", "x").close()
            os._exit(9)
        return np.full(2, self.t %% 7 / 7, np.float32), float(action), self.t %% 9 == 0, False, {}

    def state_dict(self):
        return {"t": self.t, "state": self.state}

    def load_state_dict(self, state):
        assert (state["state"] == self.index).all()
        if os.path.exists("%(folder)s/slow"):
            open("%(folder)s/loading", "a").close()
            time.sleep(1000)
        self.t, self.state = state["t"], state["state"]

def make(config):
    return Env
"""


def test_a_grid_run_with_workers_resumes(tmp_path):
    keys = [
        *(
            "train",
            *QUIET,
            *named(tmp_path),
            *WORKERS,
            "env=grid",
            "env.num_envs=256",
            "policy.hidden_size=16",
        ),
        *("trainer.batch_size=1024", "trainer.minibatch_size=1024", "trainer.bptt_horizon=1"),
        *("trainer.update_epochs=1", "vector.worker_timeout_s=20"),
    ]
    program = [sys.executable, "-m", "metta_fast", *keys]
    for total in (1024, 2048):
        subprocess.run([*program, f"trainer.total_timesteps={total}", "resume=auto"], check=True, timeout=60)
        found = checkpoint.latest(RunDir(tmp_path / "r").checkpoints, lambda text: None)
        assert found.step == total
    state = found.load("env")["envs"]
    assert sum(value.nbytes for value in state.values() if hasattr(value, "nbytes")) > 500_000


def troubled(tmp_path, monkeypatch):
    (tmp_path / "heavy.py").write_text(ENV % {"folder": tmp_path})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return ["env=heavy:make", *WORKERS]


def test_workers_with_large_states_are_restarted(tmp_path, monkeypatch):
    more = [*troubled(tmp_path, monkeypatch), "vector.restart_workers=1", "vector.worker_timeout_s=20"]
    subprocess.run(command(tmp_path, *more, f"trainer.total_timesteps={6 * EPOCH}"), check=True, timeout=60)
    assert (tmp_path / "died").exists()
    assert check_rows(tmp_path)[-1]["perf/worker_restarts"] == 1


def test_sigterm_during_a_load_ends_the_run_and_its_workers(tmp_path, monkeypatch):
    more = [*troubled(tmp_path, monkeypatch), "vector.restart_workers=1"]
    subprocess.run(command(tmp_path, *more, f"trainer.total_timesteps={2 * EPOCH}"), check=True, timeout=60)
    step = newest(tmp_path).step
    (tmp_path / "slow").touch()
    process = subprocess.Popen(command(tmp_path, *more, "resume=auto"), stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "loading").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=15)
    finally:
        process.kill()
    assert process.returncode == 143, said
    assert "stopped by SIGTERM" in said
    assert "Traceback" not in said
    psutil.wait_procs(children, timeout=10)
    assert [child for child in children if child.is_running()] == []
    assert newest(tmp_path).step == step
