"""Runs scripts that use vectors in a process of their own, and checks what they leave behind.

Each script starts with PRELUDE and has no `if __name__ == "__main__"` guard. `start` and `run` start one;
the fixture `nothing_left` fails if a process of its session outlives it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PRELUDE = """
import os, signal, sys, time, traceback
import gymnasium, numpy as np
from metta_fast.envs.native._sync import die_with_parent
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.vector import WorkerError, VectorError, make_vector

die_with_parent()                # a killed pytest leaves no script behind
signal.signal(signal.SIGINT, signal.default_int_handler)    # ignored where a shell started pytest in the background

class Env(gymnasium.Env):        # of the main module: reaches workers by value
    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, index):
        self.index, self.t = index, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.t += 1
        if self.t == 3:
            misbehave(self.index)
        return np.zeros(3, np.float32), 1.0, False, False, {}

def misbehave(index):
    pass

def wrong():
    os.write(1, b"wrong at %.3f\\n" % time.monotonic())

def vector(**keys):
    keys = {"backend": "workers", "num_workers": 4, "num_blocks": 2, **keys}
    return make_vector(PythonEnvFactory(Env), 8, **keys)

def leftovers():
    "Descriptors (open files, sockets, memory) and children of this process."
    fds = sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                 if os.path.exists(f"/proc/self/fd/{n}") or os.path.islink(f"/proc/self/fd/{n}"))
    return [f for f in fds if "/proc/" not in f], open(f"/proc/self/task/{os.getpid()}/children").read()

def run(vec, steps=10):
    vec.async_reset(0)
    for _ in range(steps):
        for block in vec.hold_all():
            vec.send(block, np.zeros((block.size, 1), np.int32))

def fails(vec):
    "Run; print the error and how long it took to come; check that nothing is left."
    try:
        run(vec)
    except WorkerError as error:
        now = time.monotonic()
        traceback.print_exc()
        print("env", error.env, "worker", error.worker, f"came {now:.3f}", flush=True)
    try:
        vec.recv()
    except VectorError as error:
        print("again:", str(error).splitlines()[0])
    vec.close()
"""


def start(script: str) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        start_new_session=True,
    )
    STARTED.append(process)
    return process


def run(script: str, timeout_s: float = 60.0) -> str:
    """What the script wrote. It must end well, within timeout_s."""
    process = start(script)
    try:
        out, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"after {timeout_s} s: {process.communicate()[0]}") from None
    assert process.returncode == 0, out
    return out


STARTED: list[subprocess.Popen] = []


def session(process: subprocess.Popen) -> dict[int, str]:
    """Names of the processes that a script's session holds, zombies included."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = stat.read_text().rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(tail.split()[3]) == process.pid:
            found[int(stat.parent.name)] = head.partition("(")[2]
    return found


def assert_gone(process: subprocess.Popen, within_s: float) -> None:
    process.wait(within_s)
    deadline = time.monotonic() + within_s
    while session(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not session(process)


@pytest.fixture
def nothing_left():
    """No process, and no file in /dev/shm of ours (memory has no name at all)."""
    yield
    while STARTED:
        assert_gone(STARTED.pop(), 2.0)
    assert not [name for name in os.listdir("/dev/shm") if "metta" in name]


CHECK = """
before = leftovers()
vec = vector(worker_timeout_s=1.0)
fails(vec)
assert leftovers() == before, (leftovers(), before)
"""


def took(out: str) -> float:
    """Seconds from the moment when an environment went wrong to the error."""
    return float(re.search(r"came ([\d.]+)", out)[1]) - max(
        float(t) for t in re.findall(r"wrong at ([\d.]+)", out)
    )


def wait_for(process: subprocess.Popen, word: str) -> str:
    line = process.stdout.readline()
    assert word in line, line + process.stdout.read()
    return line
