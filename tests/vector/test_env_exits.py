"""Tests that an environment cannot end the program, a thread or a worker without a word: SystemExit and the like are
named as its failure, wherever they are raised. Tests that threads end with their vector."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from gymnasium import spaces

from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.envs.counter import CounterFactory
from metta_fast.envs.native._sync import Ready
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.vector import VectorError, WorkerError, make_vector
from metta_fast.vector.thread_pool import ThreadPool

BACKENDS = {
    "serial": {"backend": "serial"},
    "threads": {"backend": "threads", "num_threads": 3},
    "workers": {"backend": "workers", "num_workers": 2},
}
ENVS, FAULTY = 4, 2


class Unheard(BaseException):
    """No Exception."""


class Env:
    """Environment FAULTY raises `error` in the method `where`."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, index, where, error, closed):
        self.index, self.where, self.error, self.closed = index, where, error, closed
        self.may_raise("make")

    def may_raise(self, where):
        if (where, self.index) == (self.where, FAULTY):
            raise self.error("simulator gave up")

    def reset(self, seed=None):
        self.may_raise("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.may_raise("step")
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def state_dict(self):
        self.may_raise("state_dict")
        return {}

    def load_state_dict(self, state):
        self.may_raise("load_state_dict")

    def close(self):
        self.closed.append(self.index)
        self.may_raise("close")


def vector(backend, where="", error=SystemExit, closed=None, **keys):
    closed = [] if closed is None else closed
    factory = PythonEnvFactory(lambda index: Env(index, where, error, closed))
    closed.clear()  # the factory has made and closed one
    return make_vector(factory, ENVS, **BACKENDS[backend], **keys)


def play(vec):
    vec.async_reset(0)
    for _ in range(3):
        vec.send(vec.recv(20.0), np.zeros((ENVS, 1), np.int32))
    vec.recv(20.0)


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, KeyboardInterrupt, StopIteration, Unheard])
@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_whatever_an_environment_raises_is_named_at_once(backend, where, error):
    vec = vector(backend, where, error, worker_timeout_s=600.0)
    with pytest.raises(WorkerError, match=f"{error.__name__}: simulator gave up") as told:
        play(vec)
    assert told.value.env == FAULTY
    assert f"environment {FAULTY} raised {error.__name__}" in str(told.value).splitlines()[0]
    assert f"{__file__}:" in str(told.value).splitlines()[0]
    with pytest.raises(VectorError, match="closed since an error"):
        vec.recv()


def handler(*_):
    raise KeyboardInterrupt


def busy():
    signal.raise_signal(signal.SIGINT)


def caught_and_raised_again():
    try:
        busy()
    except KeyboardInterrupt:
        raise KeyboardInterrupt("while the simulator ran") from None


@pytest.mark.parametrize("how", [busy, caught_and_raised_again])
@pytest.mark.parametrize("handle", [signal.default_int_handler, handler])
def test_ctrl_c_within_a_step_stays_ctrl_c(how, handle):
    vec = vector("serial", "step", lambda _: how())
    before = signal.signal(signal.SIGINT, handle)
    try:
        with pytest.raises(KeyboardInterrupt):
            play(vec)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_that_an_environment_ends_is_noticed():
    """pthread_exit ends the thread without an exception."""
    code = """
import ctypes, time, numpy as np
from tests.vector.test_env_exits import Env, FAULTY, make_vector
from metta_fast.envs.python_env import PythonEnvFactory

class Ends(Env):
    def may_raise(self, where):
        if (where, self.index) == ("step", FAULTY):
            ctypes.CDLL(None).pthread_exit(None)

factory = PythonEnvFactory(lambda index: Ends(index, "", None, []))
vec = make_vector(factory, 4, backend="threads", num_threads=2)
vec.async_reset(0)
start = time.monotonic()
vec.send(vec.recv(20.0), np.zeros((4, 1), np.int32))
try:
    vec.recv()
except RuntimeError as error:
    print(error, time.monotonic() - start < 1.0, flush=True)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "environments 2…3 ended the thread that stepped it (pthread_exit) True" in out.stdout, out.stderr


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, Unheard, ValueError])
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_cannot_be_made_is_named_and_those_before_it_are_closed(backend, error):
    closed = []
    kinds = WorkerError if backend == "workers" else EnvError
    with pytest.raises(
        kinds, match=f"environment {FAULTY} could not be made: {error.__name__}: simulator gave up"
    ):
        vector(backend, "make", error, closed)
    if backend != "workers":
        assert sorted(closed) == [0, 1]


class Quitting(CounterFactory):
    """A factory of its own batches, one of which cannot be made."""

    closed: list[int]

    def make_batch(self, first_env, num_envs, total_envs):
        if first_env >= FAULTY:
            raise SystemExit("no licence")
        batch = super().make_batch(first_env, num_envs, total_envs)
        batch.close = lambda: self.closed.append(first_env)
        return batch


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_a_batch_that_cannot_be_made_is_named_and_those_before_it_are_closed(backend):
    factory = Quitting()
    factory.closed = []
    with pytest.raises(WorkerError, match="environment 2 could not be made: SystemExit: no licence"):
        make_vector(factory, ENVS, backend=backend, num_blocks=ENVS)
    assert sorted(factory.closed) == [0, 1]


@pytest.mark.parametrize("error", [SystemExit, Unheard])
@pytest.mark.parametrize("where", ["state_dict", "load_state_dict"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_state_that_cannot_be_had_does_not_end_the_program(backend, where, error):
    vec = vector(backend, where, error)
    vec.async_reset(0)
    vec.hold_all()
    with pytest.raises(WorkerError, match=f"{error.__name__}: simulator gave up"):
        vec.load_state_dict(vec.state_dict())
    vec.close()


@pytest.mark.parametrize("error", [SystemExit, ValueError])
@pytest.mark.parametrize("num_blocks", [1, ENVS])
@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_every_environment_is_closed_when_one_raises(backend, num_blocks, error):
    closed = []
    vec = vector(backend, "close", error, closed, num_blocks=num_blocks)
    words = f"environment {FAULTY}: closing the environments raised {error.__name__}: simulator gave up"
    with pytest.raises(WorkerError, match=words) as told:
        vec.close()
    assert told.value.env == FAULTY
    assert sorted(closed) == list(range(ENVS))


def test_an_environment_that_cannot_be_closed_in_a_worker_is_named():
    vec = vector("workers", "close", ValueError)
    play(vec)
    start = time.monotonic()
    with pytest.raises(
        WorkerError, match=f"environment {FAULTY}: close\\(\\) raised ValueError: simulator gave up"
    ) as told:
        vec.close()
    assert told.value.env == FAULTY
    assert time.monotonic() - start < 2.0


# ── threads end with their vector ──


def ours():
    return [thread for thread in threading.enumerate() if thread.name.startswith("mf-env-")]


@pytest.mark.parametrize("cyclic", [False, True])
@pytest.mark.parametrize("flying", [False, True])
def test_a_vector_that_was_not_closed_takes_its_threads_along(flying, cyclic):
    before = ours()
    for _ in range(3):
        vec = vector("threads")
        if cyclic:
            vec.itself = vec
        if flying:
            vec.async_reset(0)
        gone = weakref.ref(vec)
        del vec
        gc.collect()
        assert gone() is None
    assert ours() == before


def test_closing_takes_no_task_that_has_not_begun():
    ready, begun, go, ran = Ready(2), threading.Event(), threading.Event(), []
    pool = ThreadPool(ready, 2, 1)

    def first():
        begun.set()
        go.wait(20)
        ran.append("first")

    pool.start(0, [(0, first)])
    pool.start(1, [(1, lambda: ran.append("second"))])
    assert begun.wait(20)
    assert pool.running() == [0]
    assert pool.stop(0.01) is False
    go.set()
    assert pool.stop(20.0) is True
    assert ran == ["first"]


def test_threads_that_cannot_be_had_are_told_with_the_cure_and_the_others_end(monkeypatch):
    before = ours()
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "mf-env-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(UserError, match=r"cannot start 4 threads: .*vector\.num_threads"):
        make_vector(CounterFactory(), 8, backend="threads", num_threads=4)
    assert ours() == before


def test_a_thread_may_drop_the_vector_that_it_steps():
    """The garbage collector may run, and find the vector, in one of its own threads."""

    class Last(CounterFactory):
        def make_batch(self, first_env, num_envs, total_envs):
            batch = super().make_batch(first_env, num_envs, total_envs)
            batch.step = lambda: (begun.set(), go.wait(20), gc.collect(), done.set())
            return batch

    begun, go, done = threading.Event(), threading.Event(), threading.Event()
    vec = make_vector(Last(), 2, backend="threads")
    vec.itself = vec
    vec.async_reset(0)
    vec.send(vec.recv(20.0))
    assert begun.wait(20)
    gone = weakref.ref(vec)
    gc.disable()
    try:
        del vec
        go.set()
        assert done.wait(20)
        assert gone() is None
    finally:
        gc.enable()
    for thread in ours():
        thread.join(20)
    assert not ours()


def test_a_crash_in_the_trainers_own_process_shows_where_python_was(tmp_path):
    (tmp_path / "my_crash.py").write_text(
        "import ctypes\ndef make(config):\n    return lambda index: ctypes.string_at(0)\n"
    )
    command = [sys.executable, "-m", "metta_fast", "train", "env=my_crash:make", "env.step_cost=medium"]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert out.returncode == -signal.SIGSEGV
    assert "my_crash.py" in out.stderr
    assert not (tmp_path / "runs").exists()
