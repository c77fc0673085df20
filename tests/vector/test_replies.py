"""Tests replies that cannot be used, and workers that cannot be started: errors of ours, and nothing is left open."""

from __future__ import annotations

import re
import sys

import pytest

from tests.vector.scripts import CHECK, nothing_left, run  # noqa: F401

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
    pytest.mark.usefixtures("nothing_left"),
]

STATES = """
import stat
class Env(Env):
    def state_dict(self):
        return {"t": self.t, "made": made(self.index)}
    def load_state_dict(self, state):
        self.t = state["t"]

def made(index):
    return index

def broken(call):
    "Print the error; the vector must be closed after it."
    before = leftovers()
    vec = vector(worker_timeout_s=5.0)
    run(vec, 2)
    vec.hold_all()
    try:
        call(vec)
    except WorkerError as error:
        print("worker", error.worker, error)
    try:
        vec.recv()
    except VectorError as error:
        print("again:", error)
    assert leftovers() == before, (leftovers(), before)
"""


def test_a_worker_that_ends_within_its_reply_is_named():
    said = run(
        STATES
        + """
def made(index):
    if index == 5:
        socket = next(n for n in range(3, 100) if os.path.exists(f"/proc/self/fd/{n}")
                      and stat.S_ISSOCK(os.fstat(n).st_mode))
        os.write(socket, (1).to_bytes(8, "little") + (10**6).to_bytes(8, "little") + b"half of it")
        os._exit(9)
broken(lambda vec: vec.state_dict())
"""
    )
    assert re.search(r"worker 2 worker 2 \(pid \d+, environments 4…5\) exited with code 9", said), said
    assert "again: the vector is closed since an error: worker 2" in said


def test_a_reply_that_cannot_be_unpickled_is_an_error_of_its_worker():
    said = run(
        STATES
        + """
class Bad:
    def __reduce__(self):
        return eval, ("1 / 0",)
def made(index):
    return Bad() if index == 5 else 0
broken(lambda vec: vec.state_dict())
"""
    )
    assert re.search(
        r"worker 2 worker 2 \(pid \d+, environments 4…5\) sent a message that cannot be read "
        r"while answering \(state\): ZeroDivisionError: division by zero",
        said,
    ), said
    assert "again: the vector is closed since an error: worker 2" in said


def test_a_state_that_cannot_be_pickled_is_an_error():
    said = run(
        STATES
        + """
def load(vec):
    state = vec.state_dict()
    state["envs"]["env"][5]["made"] = lambda: 0
    vec.load_state_dict(state)
broken(load)
"""
    )
    assert re.search(
        r"worker 2 the message \(load\) to worker 2 \(pid \d+, environments 4…5\) cannot be pickled", said
    )
    assert "again: the vector is closed since an error" in said


def test_a_launcher_that_closes_its_socket_but_does_not_end_is_an_error():
    said = run(
        STATES
        + """
import subprocess
def wait(timeout=None, wait=subprocess.Popen.wait):
    raise subprocess.TimeoutExpired("launcher", timeout)
def lose(vec):
    process = vec._crew.process
    process.kill()
    process.wait()
    process.wait = wait
    try:
        vec.state_dict()
    finally:
        del process.wait
broken(lose)
"""
    )
    assert "the process that started the workers has closed its socket and hangs" in said
    assert "again: the vector is closed since an error" in said


def test_workers_that_cannot_be_started_leave_no_descriptor():
    """One more descriptor each time, until they suffice: each step of the start fails once."""
    said = run("""
import resource
from metta_fast import UserError
vector(num_workers=6).close()
before = leftovers()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
failed = 0
for limit in range(4, 200):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        vector(num_workers=6).close()
        break
    except UserError as error:
        failed, last = failed + 1, error
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert leftovers() == before, (limit, leftovers(), before)
print(failed, last)
""")
    assert int(said.split()[0]) > 24
    assert re.search(
        r"cannot start 6 workers: Too many open files; this process may open \d+, and each worker needs 4: "
        r"raise the limit \(ulimit -n\), or use fewer workers \(vector.num_workers\)",
        said,
    ), said


SMALL_PIPES = """
import fcntl
pipe = os.pipe
def small():
    read, write = pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)    # as where a user's share of pipe memory is used up
    return read, write
os.pipe = small

def f(n):
    if n:
        g(n)
    else:
        end()

def g(n):
    f(n - 1)

"""


def test_an_exception_with_a_long_traceback_is_reported_through_a_small_pipe():
    out = run(
        SMALL_PIPES
        + """
def end():
    raise ValueError("the boiler burst")

def misbehave(index):
    if index == 5:
        f(200)
"""
        + CHECK
    )
    assert "environment 5 raised" in out
    assert "ValueError: the boiler burst" in out
    assert len(out) > 10_000


def test_a_crash_deep_inside_is_reported_through_a_small_pipe():
    out = run(
        SMALL_PIPES
        + """
def misbehave(index):
    if index == 5:
        f(45)

def end():
    import ctypes; ctypes.string_at(0)
"""
        + CHECK
    )
    assert "was killed by SIGSEGV" in out
    assert "Fatal Python error" in out
