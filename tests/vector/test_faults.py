"""Tests failures in environments and workers: reported by name at once, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import sys
import time

import pytest

from tests.vector.scripts import CHECK, nothing_left, run, session, start, took, wait_for  # noqa: F401

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
    pytest.mark.usefixtures("nothing_left"),
]


def test_an_exception_reaches_the_caller_with_its_traceback():
    out = run(
        """
def misbehave(index):
    if index == 5:
        wrong()
        raise ValueError("the boiler burst")
"""
        + CHECK
    )
    assert re.search(r"WorkerError: worker 2 \(pid \d+, environments 4…5\): environment 5 raised", out), out
    assert "in misbehave" in out
    assert "ValueError: the boiler burst" in out
    assert "env 5 worker 2" in out
    assert "again: the vector is closed since an error: worker 2" in out
    assert took(out) < 1.0


def test_an_exception_while_environments_are_made():
    out = run("""
class Env(Env):
    def __init__(self, index):
        super().__init__(index)
        if index == 6:
            raise OSError("no such level")
before = leftovers()
try:
    vector()
except WorkerError as error:
    print(error)
assert leftovers() == before
""")
    assert "environment 6 could not be made: OSError: no such level" in out
    assert "worker 3" in out


def test_sys_exit_in_an_environment_is_an_error_too():
    out = run(
        """
def misbehave(index):
    if index == 0:
        sys.exit(7)
"""
        + CHECK
    )
    assert "worker 0" in out
    assert "SystemExit: 7" in out


def test_a_worker_that_exits():
    out = run(
        """
def misbehave(index):
    if index == 7:
        wrong()
        os._exit(9)
"""
        + CHECK
    )
    assert re.search(r"worker 3 \(pid \d+, environments 6…7\) exited with code 9", out), out
    assert took(out) < 1.0


def test_a_worker_killed_by_sigkill_is_named_at_once():
    out = run(
        """
def misbehave(index):
    if index == 2:
        wrong()
        os.kill(os.getpid(), signal.SIGKILL)
"""
        + CHECK
    )
    assert re.search(r"worker 1 \(pid \d+, environments 2…3\) was killed by SIGKILL", out), out
    assert "env None worker 1" in out
    assert took(out) < 0.5


def test_a_crash_shows_where_python_was():
    out = run(
        """
def misbehave(index):
    if index == 2:
        import ctypes; ctypes.string_at(0)
"""
        + CHECK
    )
    assert "was killed by SIGSEGV" in out
    assert "Fatal Python error" in out
    assert "in misbehave" in out


def test_a_hung_environment_is_named_after_the_timeout_with_its_place():
    out = run(
        """
def misbehave(index):
    if index == 4:
        wrong()
        time.sleep(1000)
"""
        + CHECK
    )
    assert re.search(r"worker 2 \(pid \d+, environments 4…5\) has not replied for 1.0 s", out), out
    assert "in misbehave" in out
    assert 0.9 < took(out) < 4


def test_a_stopped_worker_is_named_after_the_timeout():
    out = run(
        """
def misbehave(index):
    if index == 4:
        os.kill(os.getpid(), signal.SIGSTOP)
"""
        + CHECK
    )
    assert re.search(
        r"worker 2 \(pid \d+, environments 4…5\) is stopped \(SIGSTOP\) and has not replied for 1.0 s", out
    )


def test_slow_workers_that_go_on_are_not_taken_for_hung():
    run("""
def misbehave(index):
    time.sleep(0.15)    # 0.6 s for each of two blocks
vec = vector(worker_timeout_s=0.9, num_workers=1)
run(vec, 4)
vec.hold_all()
vec.close()
""")


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_an_exception_without_workers(backend):
    out = run(f"""
def misbehave(index):
    if index == 5:
        raise ValueError("the boiler burst")
before = leftovers()
fails(vector(backend={backend!r}, num_threads=3))
assert leftovers() == before
""")
    assert "WorkerError: environment 5 raised ValueError: the boiler burst" in out
    assert "in misbehave" in out
    assert "env 5 worker None" in out


@pytest.mark.parametrize("native", [False, True])
def test_a_hung_thread_is_named_after_the_timeout(native):
    out = run(f"""
from tests.vector.toys import ToyFactory
factory = ToyFactory(native={native})
vec = make_vector(factory, 8, backend="threads", num_blocks=2, num_threads=2, worker_timeout_s=0.5)
vec.async_reset(0)
for block in vec.hold_all():
    vec.send(block, np.array([[1, 60 if block.index else 0]] + 3 * [[1, 0]], np.int32))
vec.recv()
try:
    vec.recv()
except WorkerError as error:
    print(error, flush=True)
os._exit(0)
""")
    assert re.search(r"environments? 4(…\d)? for over 0.5 s", out), out


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            "np.zeros(4, np.float32), 1.0, False, False, {}",
            r"observation 'obs' has shape \(4,\), expected \(3,\)",
        ),
        ("np.zeros(3), 1.0, False, False, {}", "observation 'obs' has dtype float64, its space says float32"),
        ("np.zeros(3, np.float32), [1.0], False, False, {}", r"reward is \[1.0\]"),
        ("np.zeros(3, np.float32), 1.0, None, False, {}", "terminated is None"),
        ("np.zeros(3, np.float32), 1.0, False, {}", r"step\(\) gave tuple"),
    ],
)
def test_wrong_values_name_environment_and_field(what, message):
    out = run(f"""
class Env(Env):
    def step(self, action):
        return {what}
fails(vector(backend="serial"))
""")
    assert re.search(f"environment 0 gave a wrong value: {message}", out), out


FOREVER = """
vec = vector()
print("pids", vec.worker_pids, flush=True)
run(vec, 10**9)
"""


def test_ctrl_c_in_the_parent_leaves_nothing():
    process = start(FOREVER)
    wait_for(process, "pids")
    time.sleep(0.3)
    assert sorted(session(process).values())[:5] == ["mf-launcher", *(f"mf-worker-{w}" for w in range(4))]
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    out = process.communicate(timeout=10)[0]
    assert "KeyboardInterrupt" in out
    assert "Error:" not in out
    assert process.returncode in (-signal.SIGINT, 130)


def test_ctrl_c_wakes_recv_and_the_vector_can_go_on():
    out = run("""
def misbehave(index):
    if index == 0:
        time.sleep(0.5)
for backend in ("workers", "threads"):
    vec = vector(backend=backend, num_threads=2)
    vec.async_reset(0)
    for _ in range(3):
        for block in vec.hold_all():
            vec.send(block, np.zeros((block.size, 1), np.int32))
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    while vec.recv().index == 0:
        pass
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    start = time.monotonic()
    try:
        vec.recv()
    except KeyboardInterrupt:
        print("interrupted", f"{time.monotonic() - start < 0.3}")
    print("went on", vec.recv().index)
    vec.close()
""")
    assert out.split() == ["interrupted", "True", "went", "on", "0"] * 2


@pytest.mark.parametrize("victim", ["parent", "launcher"])
def test_sigkill_of_the_parent_or_the_launcher_leaves_nothing(victim):
    process = start(FOREVER)
    wait_for(process, "pids")
    launcher = {name: pid for pid, name in session(process).items()}["mf-launcher"]
    os.kill(process.pid if victim == "parent" else launcher, signal.SIGKILL)
    out = process.communicate(timeout=10)[0]
    if victim == "launcher":
        assert "WorkerError: the process that started the workers was killed by SIGKILL" in out


def test_what_an_environment_started_goes_with_its_worker():
    out = run("""
import subprocess
class Env(Env):
    def __init__(self, index):
        super().__init__(index)
        if os.getpid() != parent:
            self.child = subprocess.Popen(["sleep", "1000"])
            os.write(1, b"child %d\\n" % self.child.pid)

def misbehave(index):
    if index == 3:
        raise ValueError
parent = os.getpid()
fails(vector())
""")
    assert len(re.findall("child", out)) == 8  # and the fixture finds the session empty


def test_what_an_environment_started_ends_with_a_worker_that_dies_by_itself():
    out = run("""
import subprocess
def misbehave(index):
    if index == 0:
        child = subprocess.Popen(["sleep", "300"])
        os.write(1, b"child %d\\n" % child.pid)
        os._exit(3)
fails(vector())
""")
    assert re.search(r"child \d+", out)  # and the fixture finds the session empty


def test_workers_leave_ctrl_c_and_sigterm_to_the_parent():
    run("""
vec = vector()
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    for pid in vec.worker_pids:
        os.kill(pid, number)
    run(vec, 5)
vec.close()
""")


def test_closing_calls_the_environments_close_and_leaves_no_descriptor():
    out = run("""
class Env(Env):
    def close(self):
        os.write(1, b"closed %d\\n" % self.index)
before = leftovers()
for _ in range(2):
    vec = vector()
    run(vec, 2)
    vec.close()
    vec.close()
assert leftovers() == before, (leftovers(), before)
""")
    assert sorted(re.findall(r"closed (\d)", out)) == sorted("01234567" * 2 + "00")


def test_a_forked_child_of_the_parent_does_not_end_the_workers():
    run("""
vec = vector()
vec.async_reset(0)
if os.fork() == 0:
    vec.close()
    sys.exit()
os.wait()
run(vec, 3)
vec.close()
""")


def test_workers_do_not_import_torch_nor_the_main_module():
    run("""
assert not hasattr(sys, "ran_once")
class Env(Env):
    def step(self, action):
        names = sorted(m for m in sys.modules if m.split(".")[0] in ("torch", "hydra"))
        assert not names, names
        assert not hasattr(sys, "ran_once")
        return super().step(action)
sys.ran_once = True
vec = vector()
run(vec, 3)
vec.close()
""")


def test_idle_workers_use_no_processor_time():
    out = run("""
vec = vector(num_workers=8)
run(vec, 3)
vec.hold_all()
time.sleep(0.2)
def used():
    total = 0
    for pid in [*vec.worker_pids, os.getpid()]:
        fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total
before = used()
time.sleep(1.0)
print("used", used() - before, "of", os.sysconf("SC_CLK_TCK"))
vec.close()
""")
    _, ticks, _, a_second = out.split()
    assert int(ticks) <= 0.02 * int(a_second)  # in whole ticks: seconds would be rounded
