"""Tests how it is found out that a step waits, and what vector.backend=auto makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metta_fast.compat.make_vec import make_vec
from metta_fast.config.keys import EnvConfig
from metta_fast.envs import make_factory
from metta_fast.machine.hardware import GIB, Machine
from metta_fast.resolve.compose import compose
from metta_fast.resolve.explain import explain_text
from metta_fast.resolve.resolve import Resolved, resolve
from metta_fast.vector.choose import choose
from metta_fast.vector.first_look import look
from tests import strangers

LAPTOP = Machine(2, 4, 16 * GIB)
PYTHON = make_factory(EnvConfig(factory="tests.strangers:cheap")).spec
NATIVE = replace(PYTHON, native=True)


def resolved(*words: str) -> Resolved:
    return resolve(compose(words, machine=LAPTOP), machine=LAPTOP)


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("computing", "no"),
        ("slow", "threads"),  # time.sleep
        ("locking", "workers"),
        ("loyal", "workers"),
    ],
)
def test_a_step_that_waits_is_told_from_one_that_computes(name: str, waits: str) -> None:
    seen = look(make_factory(EnvConfig(factory=f"tests.strangers:{name}")))
    assert seen.failure is None
    assert seen.waits == waits


@pytest.mark.parametrize(
    ("waits", "envs", "backend", "count"),
    [
        ("no", 64, "workers", 2),
        ("no", 1, "workers", 1),
        ("threads", 64, "threads", 64),
        ("threads", 4096, "threads", 512),
        ("workers", 8, "workers", 8),
        ("workers", 512, "workers", 32),
    ],
)
def test_environments_that_wait_get_more_than_the_cores(
    waits: str, envs: int, backend: str, count: int
) -> None:
    found = choose(PYTHON, envs, cores=2, waits=waits)
    assert found.backend == backend
    assert (found.num_workers if backend == "workers" else found.num_threads) == count
    assert choose(PYTHON, envs, 2, waits, backend="serial").backend == "serial"
    native = choose(NATIVE, envs, cores=2, waits=waits)
    assert (native.backend, native.num_threads) == ("threads", min(2, envs))


def test_the_run_says_what_it_found_and_chose() -> None:
    done = resolved("env=tests.strangers:slow", "env.num_envs=16")
    assert (done.config.env.step_waits, done.config.vector.backend) == ("threads", "threads")
    assert done.config.vector.num_threads == 16
    text = explain_text(done)
    assert "auto: measured: a step waits, and other threads run meanwhile" in text
    assert "env.step_waits=threads: at most 512, 16 envs" in text
    assert not [note for note in done.notes if "share" in note]


def test_a_typed_value_counts_and_needs_no_measurement() -> None:
    words = ["env=tests.strangers:cheap", "env.step_cost=slow", "env.num_envs=16", "env.action_mask=none"]
    assert resolved(*words).config.vector.num_workers == 2
    typed = resolved(*words, "env.step_waits=workers")
    assert (typed.config.vector.backend, typed.config.vector.num_workers) == ("workers", 16)
    assert not [note for note in typed.notes if "share" in note]
    fixed = resolved(*words, "env.step_waits=threads", "vector.backend=workers", "vector.num_workers=3")
    assert (fixed.config.vector.backend, fixed.config.vector.num_workers) == ("workers", 3)
    assert resolved("env=grid").config.env.step_waits == "no"


def test_make_vec_chooses_threads_for_environments_that_wait() -> None:
    vec = make_vec(strangers._sleeping(5e-3), num_envs=6)
    try:
        assert (type(vec).__name__, vec.num_threads) == ("PythonThreadsVector", 6)
        vec.async_reset(0)
        assert vec.recv().rows.obs["obs"].shape == (6, 2)
    finally:
        vec.close()
