"""Tests that workers end after their launcher even where the kernel does not end them (macOS has no PDEATHSIG)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.vector.test_faults import nothing_left, session, start, wait_for

__all__ = ["nothing_left"]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

WITHOUT_PDEATHSIG = """
from metta_fast.vector import crew
from tests.vector.toys import ToyFactory

crew.BOOT = crew.BOOT.replace("from metta_fast.vector.launcher", '''
import metta_fast.vector.worker
metta_fast.vector.worker.die_with_parent = lambda: None
from metta_fast.vector.launcher''')
assert "lambda" in crew.BOOT

def step(vec, nap=0):
    for block in vec.hold_all():
        vec.send(block, np.full((block.size, 2), nap, np.int32) * [0, 1])
"""

CASES = {
    "idle": """
vec = make_vector(ToyFactory(native=True), 8, backend="workers", num_workers=2, num_blocks=2)
vec.async_reset(0)
step(vec)
vec.hold_all()
""",
    "within a native step": """
vec = make_vector(ToyFactory(native=True), 2, backend="workers", num_workers=2)
vec.async_reset(0)
step(vec, nap=20)
""",
    "within a Python step": """
def misbehave(index):
    time.sleep(1)
vec = vector(num_workers=2)
vec.async_reset(0)
for _ in range(3):
    for block in vec.hold_all():
        vec.send(block, np.zeros((block.size, 1), np.int32))
""",
    "after an exception": """
def misbehave(index):
    raise ValueError
vec = vector(num_workers=2, num_blocks=1)
vec.async_reset(0)
for _ in range(3):
    vec.send(vec.hold_all()[0], np.zeros((8, 1), np.int32))
""",
    "while the environments are made": """
class Env(Env):
    def __init__(self, index):
        super().__init__(index)
        if os.getpid() != parent:
            os.write(1, b"waits\\n")
            time.sleep(0.5)
parent = os.getpid()
vec = vector(num_workers=2)
""",
}


def workers(process: subprocess.Popen) -> list[str]:
    return sorted(name for name in session(process).values() if name.startswith("mf-worker"))


@pytest.mark.parametrize("case", CASES)
def test_workers_end_with_their_launcher_where_the_kernel_does_not_end_them(case):
    process = start(WITHOUT_PDEATHSIG + CASES[case] + "print('waits', flush=True)\ntime.sleep(1000)\n")
    wait_for(process, "waits")
    launcher = {name: pid for pid, name in session(process).items()}["mf-launcher"]
    deadline = time.monotonic() + 10
    while len(workers(process)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(workers(process)) == 2
    os.kill(launcher, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while workers(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = workers(process)
    for pid, name in session(process).items():
        if name.startswith("mf-worker"):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    assert left == []


def test_a_worker_whose_launcher_ended_before_it_ran_notices():
    """It cannot ask for its parent: the answer would be the process that adopted it."""
    process = start(
        """
from metta_fast.vector import crew
crew.BOOT = crew.BOOT.replace("from metta_fast.vector.launcher", """
        + '"' * 3
        + """
import os, time
def fork(forked=os.fork):
    pid = forked()
    if pid == 0:
        time.sleep(1)
    return pid
os.fork = fork
from metta_fast.vector.launcher"""
        + '"' * 3
        + """)
vector(num_workers=2)
"""
    )
    deadline = time.monotonic() + 20
    while len(session(process)) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGSTOP)  # its sockets stay open
    launcher = min(pid for pid, name in session(process).items() if name == "mf-launcher")
    os.kill(launcher, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while (
        len(session(process)) > 2 and time.monotonic() < deadline
    ):  # the stopped parent does not reap its launcher
        time.sleep(0.05)
    left = set(session(process)) - {process.pid, launcher}
    for pid in [*left, process.pid]:
        os.kill(pid, signal.SIGKILL)
    assert left == set()
