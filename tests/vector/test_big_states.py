"""Tests large states and stopped processes: the workers backend never waits without a limit, and leaves nothing."""

from __future__ import annotations

import re
import signal
import sys
import time

import pytest

from tests.vector.scripts import nothing_left, run, start, wait_for  # noqa: F401

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
    pytest.mark.usefixtures("nothing_left"),
]

LIMIT_S = 45.0
"""Longer than any of the limits that the scripts set."""
MB = 1_000_000
BIG = """
import faulthandler
faulthandler.dump_traceback_later(40, exit=True)
SIZE = %d

class Env(Env):
    def __init__(self, index):
        super().__init__(index)
        self.s = np.full(SIZE, index, np.uint8)
    def state_dict(self):
        return {"s": self.s, "t": self.t}
    def load_state_dict(self, state):
        self.s, self.t = state["s"], state["t"]

def states(vec):
    vec.hold_all()
    return vec.state_dict()

def same(a, b):
    pairs = zip(a["envs"]["env"], b["envs"]["env"])
    return all(x["t"] == y["t"] and x["s"].tobytes() == y["s"].tobytes() for x, y in pairs)

def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)

def launcher():
    return int(open(f"/proc/self/task/{os.getpid()}/children").read().split()[0])

def vector(**keys):
    keys = {"backend": "workers", "num_workers": 2, "num_blocks": 2, "worker_timeout_s": 2.0, **keys}
    return make_vector(PythonEnvFactory(Env), 4, **keys)

def told(call):
    "Print the error of a call and how long it took."
    start = time.monotonic()
    try:
        call()
    except BaseException as error:
        print(type(error).__name__, error, f"after {time.monotonic() - start:.1f} s")
    else:
        print("no error")
"""
GOOD = """
before = leftovers()
with vector(worker_timeout_s=20.0) as vec:
    run(vec, 3)
    state = states(vec)
    run(vec, 2)
    vec.load_state_dict(state)
    assert same(states(vec), state)
with vector(num_workers=3, worker_timeout_s=20.0) as vec:
    vec.load_state_dict(state)
    assert same(states(vec), state)
assert leftovers() == before, (leftovers(), before)
"""


def script(text: str, size: int = 5 * MB, timeout_s: float = LIMIT_S) -> str:
    return run(BIG % size + text, timeout_s)


@pytest.mark.parametrize("a_worker", [1000, MB, 100 * MB])
def test_states_of_any_size_are_saved_and_loaded(a_worker):
    script(GOOD, a_worker // 2)


@pytest.mark.parametrize("a_worker", [1000, MB, 100 * MB])
def test_a_factory_may_hold_arrays_of_any_size(a_worker):
    script(
        """
weights = np.arange(SIZE, dtype=np.uint8)
class Env(Env):
    def __init__(self, index, weights=weights):
        super().__init__(index)
        assert weights.tobytes() == np.arange(len(weights), dtype=np.uint8).tobytes()
        self.s = weights[:2]
vector(worker_timeout_s=20.0).close()
""",
        a_worker,
    )


def test_a_stopped_worker_is_named_while_environments_are_made():
    said = script("""
class Env(Env):
    def __init__(self, index):
        super().__init__(index)
        if index == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
before = leftovers()
told(vector)
assert leftovers() == before, (leftovers(), before)
""")
    assert re.search(
        r"WorkerError worker 1 \(pid \d+, environments 2…3\) is stopped \(SIGSTOP\) and has not replied "
        r"for 2.0 s while making environments \(vector.worker_timeout_s\) after \d\.\d s",
        said,
    ), said


STOPPED = """
before = leftovers()
vec = vector()
run(vec, 3)
state = states(vec)
%s
vec.close()
told(lambda: states(vec))
assert leftovers() == before, (leftovers(), before)
"""


@pytest.mark.parametrize("call", ["states(vec)", "vec.load_state_dict(state)"])
def test_a_worker_that_was_stopped_is_named(call):
    said = script(STOPPED % f"stop(vec.worker_pids[1])\ntold(lambda: {call})")
    command = "load" if "load" in call else "state"
    assert re.search(
        r"WorkerError worker 1 \(pid \d+, environments 2…3\) is stopped \(SIGSTOP\) and has not replied "
        rf"for 2.0 s while answering \({command}\) after [1-9]\.\d s",
        said,
    ), said
    assert "VectorError the vector is closed since an error: worker 1" in said


@pytest.mark.parametrize("method", ["state_dict(self", "load_state_dict(self, state"])
def test_a_worker_that_stops_in_the_middle_is_named(method):
    said = script(f"""
class Env(Env):
    def {method}):
        if self.index == 3 and self.t == 4:
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().{method.replace("self, ", "").replace("self", "")})
before = leftovers()
vec = vector()
run(vec, 2)
state = states(vec)
run(vec, 2)
told(lambda: vec.load_state_dict({{**state, "envs": states(vec)["envs"]}}))
assert leftovers() == before, (leftovers(), before)
""")
    assert re.search(r"WorkerError worker 1 .* is stopped \(SIGSTOP\) and has not replied for 2.0 s", said), (
        said
    )


@pytest.mark.parametrize("size", [1000, 5 * MB])
def test_closing_beside_a_stopped_worker_ends(size):
    said = script(STOPPED % "stop(vec.worker_pids[1])\ntold(vec.close)", size)
    assert "no error" in said


@pytest.mark.parametrize(
    "how", ["del vec; import gc; gc.collect()", "vec._finalizer()", "sys.exit()", "raise ValueError"]
)
def test_a_vector_that_was_not_closed_ends_beside_stopped_processes(how):
    process = start(
        BIG % 1000
        + f"""
vec = vector()
run(vec, 2)
stop(vec.worker_pids[0])
stop(launcher())
print("stopped", flush=True)
{how}
"""
    )
    wait_for(process, "stopped")
    began = time.monotonic()
    process.communicate(timeout=LIMIT_S)
    assert time.monotonic() - began < 30


def test_a_stopped_launcher_keeps_neither_loading_nor_closing():
    said = script(
        STOPPED
        % """
stop(launcher())
vec.load_state_dict(state)
assert same(states(vec), state)
told(vec.close)
"""
    )
    assert "no error" in said


def test_a_worker_that_ends_while_the_launcher_is_stopped_is_named():
    said = script(
        STOPPED % "stop(launcher())\nos.kill(vec.worker_pids[1], signal.SIGKILL)\ntold(lambda: states(vec))"
    )
    assert re.search(r"WorkerError worker 1 \(pid \d+, environments 2…3\) has ended", said), said
    assert "the process that started the workers is stopped (SIGSTOP)" in said


def test_a_launcher_that_stops_at_the_start_is_named():
    said = script("""
import subprocess
import metta_fast.vector.workers
metta_fast.vector.workers.START_S = 2.0
class Stopped(subprocess.Popen):
    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        stop(self.pid)
subprocess.Popen = Stopped
big = np.zeros(SIZE, np.uint8)
class Env(Env):
    def __init__(self, index, big=big):
        super().__init__(index)
before = leftovers()
told(vector)
assert leftovers() == before, (leftovers(), before)
""")
    assert re.search(
        r"WorkerError the process that starts the workers \(pid \d+\) is stopped \(SIGSTOP\) and has not replied "
        r"for 2.0 s",
        said,
    ), said


def test_a_launcher_that_dies_at_the_start_is_named():
    said = script("""
import subprocess
class Killed(subprocess.Popen):
    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        self.kill()
subprocess.Popen = Killed
big = np.zeros(SIZE, np.uint8)
class Env(Env):
    def __init__(self, index, big=big):
        super().__init__(index)
before = leftovers()
told(vector)
assert leftovers() == before, (leftovers(), before)
""")
    assert "WorkerError the process that started the workers was killed by SIGKILL" in said


@pytest.mark.parametrize("at", ["load", "state"])
def test_ctrl_c_during_a_message_acts_and_closing_is_quick(at):
    patient = STOPPED.replace("vec = vector()", "vec = vector(worker_timeout_s=30.0)")
    said = script(
        patient
        % f"""
stop(vec.worker_pids[0])
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
told(lambda: vec.load_state_dict(state) if {at!r} == "load" else states(vec))
start = time.monotonic()
vec.close()
assert time.monotonic() - start < 10
"""
    )
    assert re.search(r"KeyboardInterrupt  after \d\.\d s", said), said
    assert "VectorError the vector is closed" in said


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_load_ends_the_program(signum):
    process = start(
        BIG % (5 * MB)
        + """
vec = vector(worker_timeout_s=30.0)
run(vec, 2)
state = states(vec)
stop(vec.worker_pids[0])
print("loading", flush=True)
vec.load_state_dict(state)
"""
    )
    wait_for(process, "loading")
    time.sleep(0.2)
    process.send_signal(signum)
    process.communicate(timeout=10)
    assert process.returncode == -signum
