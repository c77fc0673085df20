"""Tests that memory outlives the threads that write to it, however vectors, pools and batches are dropped.

A failure here is a crash, so scripts run in processes of their own, whose allocators overwrite what was freed.
.ci/sanitize runs this file with AddressSanitizer.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from metta_fast.envs.native._pool import Pool
from metta_fast.envs.native._sync import Memory, Ready
from metta_fast.vector import WorkerError, make_vector
from tests.vector.suite import BACKENDS, small_grid
from tests.vector.toys import JOB, ToyFactory

ROOT = Path(__file__).parents[2]
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
KINDS = ["grid", "grid-repeated"] + ["robot"] * (importlib.util.find_spec("mujoco") is not None)

PRELUDE = """
import gc, os, sys, threading, time
import numpy as np
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.grid.env import GridFactory
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.envs.repeat import repeated
from metta_fast.vector import make_vector

def factory(kind):
    if kind == "robot":
        from metta_fast.envs.robot.env import RobotFactory
        return RobotFactory("ant")
    grid = GridFactory(num_agents=4, room_size=[12, 12])
    return repeated(grid, 4) if kind == "grid-repeated" else grid

def fly(vec):
    "Resets and puts every block in flight."
    vec.async_reset(0)
    for block in vec.hold_all():
        vec.send(block, np.zeros_like(block.rows.action))
    return vec
"""


def run(script: str, *arguments: object) -> str:
    """Runs PRELUDE and the script in a process of its own; returns what it prints. Freed memory is overwritten."""
    env = {
        "PYTHONMALLOC": "debug",
        "MALLOC_PERTURB_": "" if "robot" in arguments else "165",
        "OPENBLAS_NUM_THREADS": "1",
        **os.environ,
    }
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PRELUDE + script, *map(str, arguments)],
        env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, f"exit code {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


# ── dropped vectors ──

DROPPED = """
def threads():
    return len(os.listdir("/proc/self/task"))

first = threading.Thread(target=int)     # with it a sanitizer starts a thread of its own
first.start(), first.join(), time.sleep(0.1)
before = threads()
made, kind, cyclic = factory(sys.argv[1]), sys.argv[1], sys.argv[2] == "cycle"
gc.set_threshold(1 if cyclic else 700)
envs = 32 if kind == "robot" else 2048
for i in range(6):
    vec = fly(make_vector(made, envs, backend="threads", num_blocks=1 + i % 2, num_threads=2))
    if cyclic:
        vec.itself = [vec, vec.ready, vec.pool, *vec.batches]
    time.sleep(0.001 * (i % 3))       # inside the step
    vec = None
    if i % 3 == 2:
        gc.collect()
gc.collect()
deadline = time.monotonic() + 20     # a thread that was joined is listed for a moment
while threads() > before and time.monotonic() < deadline:
    time.sleep(0.01)
print("threads left:", threads() - before)
"""


@linux
@pytest.mark.parametrize("cycle", ["no-cycle", "cycle"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_native_vector_may_be_dropped_with_blocks_in_flight(kind, cycle):
    assert run(DROPPED, kind, cycle) == "threads left: 0\n"


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_held_by_the_caller_outlive_the_vector(backend):
    factory = small_grid()
    vec = make_vector(factory, 11, num_blocks=3, **BACKENDS[backend])
    vec.async_reset(3)
    blocks = vec.hold_all()
    before = [{name: leaf.copy() for name, leaf in block.rows.obs.items()} for block in blocks]
    slab, bytes_before = vec.slab, vec.slab.copy()
    vec.close()
    gone = weakref.ref(vec)
    del vec
    gc.collect()
    assert gone() is None
    for block, copies in zip(blocks, before):
        for name, copy in copies.items():
            np.testing.assert_array_equal(block.rows.obs[name], copy)
    np.testing.assert_array_equal(slab, bytes_before)
    slab[:] = 7  # still writable memory


# ── threads that outlive their pool ──


def gated_job():
    """A job that waits: (its address, an event that it has begun, an event that lets it end, the callback to hold)."""
    begun, go = threading.Event(), threading.Event()

    def work(_, lo, hi):
        begun.set()
        go.wait(60)
        return 0

    callback = JOB(work)
    return ctypes.cast(callback, ctypes.c_void_p).value, begun, go, callback


def memory_of_ready(memory):
    """Makes `memory` that of a Ready with two blocks."""
    size = 192
    valid = Ready(2)
    memory[:size] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(valid.address))


def wait_until(true):
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("way", ["closed", "dropped", "in-a-cycle"])
def test_what_a_late_thread_may_touch_is_kept_until_it_ends(way):
    address, begun, go, callback = gated_job()
    mine, of_ready = (np.frombuffer(Memory(4096), np.uint8) for _ in range(2))  # the collector clears no weak
    memory_of_ready(of_ready)  # reference to an array before the array is freed
    ready = Ready(2, address=of_ready.ctypes.data, keep=of_ready)
    pool = Pool(ready, [(address, 0, 1)] * 2, 1, keep=[mine, callback])
    watched = [weakref.ref(mine), weakref.ref(of_ready)]
    pool.step(0)
    assert begun.wait(30)
    if way == "closed":
        assert pool.close(0.01) is False
        assert pool.close() is True  # nothing more to wait for
        with pytest.raises(RuntimeError, match="closed pool"):
            pool.step(1)
    elif way == "in-a-cycle":
        cycle = [pool, ready, mine, of_ready]
        cycle.append(cycle)
        del cycle
    del pool, ready, mine, of_ready, callback
    gc.collect()  # the others wait here for their patience
    assert all(ref() is not None for ref in watched)
    go.set()
    wait_until(
        lambda: Pool(Ready(1), [], 0).close() and gc.collect() >= 0 and all(ref() is None for ref in watched)
    )


class Gate(ToyFactory):
    """Native environments whose step waits for `go`."""

    def __init__(self):
        super().__init__(native=True)
        self.address, self.begun, self.go, self.callback = gated_job()

    def make_batch(self, first_env, num_envs, total_envs):
        batch = super().make_batch(first_env, num_envs, total_envs)
        batch.native_job = lambda: (self.address, 0, 1)
        return batch


def test_a_hung_native_environment_keeps_its_batch_and_rows_when_the_vector_is_gone():
    gate = Gate()
    vec = make_vector(gate, 1, backend="threads", worker_timeout_s=0.2)
    batch = weakref.ref(vec.batches[0])
    vec.async_reset(0)
    vec.send(vec.recv())
    with pytest.raises(WorkerError, match=r"environment 0 for over 0\.2 s"):
        vec.recv()
    vec.close()
    del vec
    gc.collect()
    assert batch() is not None
    gate.go.set()
    wait_until(lambda: Pool(Ready(1), [], 0).close() and gc.collect() >= 0 and batch() is None)


# ── the garbage collector ──

GARBAGE = """
from metta_fast.envs.native._sync import Board, Memory, Ready, Station, board_size
from metta_fast.envs.native._pool import Pool

class Node:
    pass

def cycle(*parts):
    node = Node()
    node.itself, node.parts = node, parts

def board():
    board = Board(Memory(board_size(1, 2)), 1, [(0, 1), (0, 1)])
    return board, board.ready

def batch(kind):
    from metta_fast.contracts.slab import new_rows
    made, envs = factory(kind), 160         # numpy keeps arrays below 1 KB when they are freed
    batch = made.make_batch(0, envs, envs)
    batch.bind(new_rows(made.spec, envs * made.spec.agents_per_env))
    return batch

def station():
    memory = Memory(board_size(1, 2))
    board = Board(memory, 1, [(0, 1), (0, 1)])
    made = batch("grid")
    jobs = [made.native_job()] * 2
    return Station(memory, 0, jobs, pool=Pool(Ready(2), jobs, 1, keep=made), keep=made), board

MAKE = {"ready": lambda: Ready(4), "board": lambda: board()[0], "ready-of-a-board": lambda: board()[1],
        "station": station, **{kind: lambda kind=kind: batch(kind) for kind in ("grid", "grid-repeated", "robot")}}
gc.collect()
gc.disable()
for _ in range(2 if sys.argv[1] == "robot" else 20):
    made = MAKE[sys.argv[1]]()
    cycle(*(made if isinstance(made, tuple) else (made,)))
    del made
    gc.collect()
    junk = [np.full(64, 0xAB, np.uintp) for _ in range(50)]
print("survived")
"""


@pytest.mark.parametrize("kind", ["ready", "board", "ready-of-a-board", "station", *KINDS])
def test_the_garbage_collector_may_free_any_native_object(kind):
    assert run(GARBAGE, kind) == "survived\n"


# ── the end of the process ──

EXITS = """
class Napper:
    import gymnasium
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, seed=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        time.sleep(0.002)
        np.linalg.inv(np.random.rand(60, 60))
        return np.zeros(2, np.float32), 0.0, False, False, {}
    def close(self):
        pass

which, times = sys.argv[1], int(sys.argv[2])
made = PythonEnvFactory(lambda index: Napper()) if "python" in which else factory("grid")
backend = which.split("-")[0]
keys = {"threads": {"num_threads": 3}, "workers": {"num_workers": 2}}.get(backend, {})
pids = []
for i in range(times):
    pids.append(os.fork())          # each ends as a program does
    if pids[-1] == 0:
        break
if pids[-1]:
    print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids])
else:
    vec = fly(make_vector(made, 300 if "python" in which else 4096, backend=backend, num_blocks=2, **keys))
    if i % 4 == 1:
        vec.itself = vec
    if i % 4 == 2:
        np.kept_for_ever = vec          # not even the end of the process drops it
    if i % 4 == 3:
        sys.exit()
"""


@linux
@pytest.mark.parametrize(
    "which", ["serial", "threads", "workers", "serial-python", "threads-python", "workers-python"]
)
def test_a_process_may_end_with_a_vector_open(which):
    times = 4 if "workers" in which else 8
    assert run(EXITS, which, times) == f"{[0] * times}\n"


FORKED = """
native = fly(make_vector(factory("grid"), 4096, backend="threads", num_threads=2, num_blocks=2))
python = fly(make_vector(CounterFactory(), 64, backend="threads", num_threads=2))
pid = os.fork()
if pid == 0:                    # none of the threads is in this copy
    for how in ("close", "drop"):
        if how == "close":
            native.close(), python.close()
    del native, python
    gc.collect()
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for vec in (native, python):
    for _ in range(3):
        for block in vec.hold_all():
            vec.send(block)
    vec.close()
print("alive")
"""


@linux
def test_a_forked_copy_leaves_the_threads_of_its_parent_alone():
    assert run(FORKED) == "7\nalive\n"
