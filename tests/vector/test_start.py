"""Tests how workers start: slow ones are waited for, hanging ones are named, and a maker must be picklable."""

from __future__ import annotations

import os
import sys
import threading
import time
import types

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.resolve.compose import compose
from metta_fast.resolve.resolve import resolve
from metta_fast.vector import WorkerError, make_vector
from tests.vector.toy_envs import Walk


def factory(seconds):
    """Environment i takes seconds[i] to be made, in a worker alone."""
    here = os.getpid()

    def make(index):
        if os.getpid() != here:
            time.sleep(seconds.get(index, 0.0))
        return Walk(index)

    return PythonEnvFactory(make)


def test_a_worker_that_hangs_while_it_makes_an_environment_is_named_after_the_timeout():
    start = time.monotonic()
    with pytest.raises(WorkerError) as told:
        make_vector(factory({3: 1000.0}), 4, backend="workers", num_workers=2, worker_timeout_s=1.0)
    assert time.monotonic() - start < 20  # Python and the imports of a busy machine
    assert "worker 1" in str(told.value)
    assert "has not replied for 1.0 s while making environments (vector.worker_timeout_s)" in str(told.value)
    assert "in make" in str(told.value)


def test_a_first_environment_that_hangs_in_the_trainers_process_is_named_after_the_timeout(monkeypatch):
    module = types.ModuleType("my_hang")
    module.make = lambda config: lambda index: time.sleep(1000)
    monkeypatch.setitem(sys.modules, "my_hang", module)
    start = time.monotonic()
    words = (
        r"environment 0 could not be made: \w+: it took longer than 0\.5 s \(vector\.worker_timeout_s\) \(.*:"
    )
    with pytest.raises(UserError, match=words):
        resolve(compose(["env=my_hang:make", "vector.worker_timeout_s=0.5"]))
    assert time.monotonic() - start < 10


def test_environments_that_are_slow_one_by_one_are_not_taken_for_hung():
    slow = factory(dict.fromkeys(range(8), 0.35))
    with make_vector(slow, 8, backend="workers", num_workers=2, worker_timeout_s=1.2) as vec:
        vec.async_reset(0)
        vec.hold_all()


def test_a_maker_that_cannot_be_pickled_is_refused_with_the_cure():
    lock = threading.Lock()

    def make(index):
        with lock:
            return Walk(index)

    words = r"vector\.backend=workers sends the maker of mine .* cannot be pickled: TypeError: .*lock"
    with pytest.raises(UserError, match=words):
        make_vector(PythonEnvFactory(make, name="mine"), 4, backend="workers")
    make_vector(PythonEnvFactory(make), 4, backend="threads").close()
