"""Tests every sentence of the vector contract (DESIGN: Vector) on every backend.

The GPU's vector, emulated and on a card, takes part where its rows can be copied to the host (`make_any`).
"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from metta_fast.contracts import batch_state
from metta_fast.contracts.errors import UserError
from metta_fast.vector import VectorError, make_vector
from tests.cuda.engines import ENGINES, OnHost, gpu_vector
from tests.vector.suite import (
    BACKENDS,
    FACTORIES,
    assert_misuse_raises,
    assert_same,
    assert_states_equal,
    check_same_bytes,
    flat,
    play,
    small_grid,
    tape_for,
)
from tests.vector.toys import ToyFactory

ENVS, LENGTH = 11, 23


class Maker:
    """Makes vectors of a backend and closes them."""

    def __init__(self, backend):
        self.backend, self.on_gpu = backend, backend not in BACKENDS
        self.made = []

    def __call__(self, factory, num_envs=ENVS, first_env=0, total_envs=None, *, num_blocks=3, **more):
        if self.on_gpu:
            counts = {"first_env": first_env, "total_envs": total_envs}
            vec = OnHost(gpu_vector(self.backend, factory, num_envs, num_blocks, **counts))
        else:
            counts = num_envs, first_env, total_envs
            keys = {**BACKENDS[self.backend], **more}
            vec = make_vector(factory, *counts, num_blocks=num_blocks, **keys)
        self.made.append(vec)
        return vec

    def small(self, **keys):
        """A factory that the backend has: two actions for an agent."""
        return small_grid(**keys) if self.on_gpu else ToyFactory(**keys)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture
def make(backend):
    maker = Maker(backend)
    yield maker
    for vec in maker.made:
        vec.close()


@pytest.fixture(params=[*BACKENDS, *ENGINES])
def make_any(request):
    maker = Maker(request.param)
    yield maker
    for vec in maker.made:
        vec.close()


def every_backend(*kinds):
    """Each backend with each kind of environment; on the GPU the grid, the kind that has an engine."""
    on_gpu = [pytest.param(*engine.values, "grid", marks=engine.marks) for engine in ENGINES]
    pairs = [*((backend, kind) for backend in BACKENDS for kind in kinds), *on_gpu]
    return pytest.mark.parametrize(("make_any", "kind"), pairs, indirect=["make_any"])


@pytest.fixture
def parallel(backend):
    if backend == "serial":
        pytest.skip("serial works in the order of the sends")


def reference(factory, tape, seed=3, stagger=False, num_envs=ENVS):
    with make_vector(factory, num_envs, backend="serial", num_blocks=1) as vec:
        vec.async_reset(seed, stagger=stagger)
        rows = play(vec, tape)
        return rows, vec.state_dict()


@every_backend(*FACTORIES)
def test_same_seed_and_tape_give_the_same_bytes(make_any, kind):
    factory, seed = FACTORIES[kind](), (1 << 64) - 3 if kind == "grid" else 3
    tape = tape_for(factory.spec, LENGTH, ENVS)
    expected, state = reference(factory, tape, seed)
    vec = make_any(factory)
    check_same_bytes(vec, factory, tape, expected, state, seed, on_gpu=make_any.on_gpu)
    if vec.num_agents > ENVS:
        assert [b.start % factory.spec.agents_per_env for b in vec.blocks] == [0, 0, 0]


@every_backend("counter", "grid", "toy")
def test_stagger_reaches_the_environments(make_any, kind):
    factory = FACTORIES[kind]()
    tape = tape_for(factory.spec, 9, ENVS)
    staggered = reference(factory, tape, stagger=True)[0]
    plain = reference(factory, tape)[0]
    assert any((staggered[k] != plain[k]).any() for k in plain)
    vec = make_any(factory)
    vec.async_reset(3, stagger=True)
    assert_same(play(vec, tape), staggered)


@pytest.mark.parametrize("stagger", [False, True])
@every_backend(*FACTORIES)
def test_environments_of_a_part_do_what_they_do_in_the_whole(make_any, kind, stagger):
    """Envs [4, 8) of 8 give the upper half of a vector of 8, bit for bit."""
    factory = FACTORIES[kind]()
    tape = tape_for(factory.spec, LENGTH, 8)
    half = 4 * factory.spec.agents_per_env
    whole, state = reference(factory, tape, stagger=stagger, num_envs=8)
    vec = make_any(factory, 4, 4, 8, num_workers=min(4, BACKENDS["workers"]["num_workers"]))
    assert (vec.num_envs, vec.num_agents, vec.first_env, vec.total_envs) == (4, half, 4, 8)
    vec.async_reset(3, stagger=stagger)
    assert_same(play(vec, tape[:, half:]), {name: rows[:, half:] for name, rows in whole.items()})
    with make_vector(factory, 4, 4, 8) as other:
        other.load_state_dict(vec.state_dict())
    assert_states_equal(vec.state_dict()["envs"], batch_state.cut(state["envs"], 4, 8))


def test_a_factory_of_the_old_form_is_told_the_new_one():
    class Old(ToyFactory):
        def make_batch(self, first_env, num_envs):
            raise AssertionError

    with pytest.raises(
        UserError, match=r"Old\.make_batch\(first_env, num_envs\): expected .*num_envs, total_envs\)"
    ):
        make_vector(Old(), 2)


def test_seeds_reach_every_environment(make):
    vec = make(FACTORIES["walk"]())
    seen = []
    for seed in (1, 2, (1 << 64) - 1):
        vec.async_reset(seed)
        vec.hold_all()
        seen.extend(vec.rows.obs["place"][:, 0].tolist())
    assert len(set(seen)) == 3 * ENVS
    with pytest.raises(ValueError, match="seed -1"):
        vec.async_reset(-1)


def test_blocks_are_equal_contiguous_ranges_of_whole_environments(make):
    vec = make(ToyFactory(agents=2), 10, num_blocks=4)
    assert [(b.index, b.start, b.stop, b.size) for b in vec.blocks] == [
        (0, 0, 4, 4),
        (1, 4, 10, 6),
        (2, 10, 14, 4),
        (3, 14, 20, 6),
    ]
    for block in vec.blocks:
        assert np.shares_memory(block.rows.reward, vec.rows.reward[block.start : block.stop])
        assert block.rows.obs["a"].shape == (block.size, 2, 3)
        assert block.rows.action.shape == (block.size, 2)
    assert vec.slab.ctypes.data % 4096 == 0
    for array in (*vec.rows.obs.values(), *vec.rows[1:]):
        assert np.shares_memory(vec.slab, array) or not array.size
        assert array.flags.c_contiguous


def test_misuse_raises(make_any):
    vec = make_any(make_any.small(), 6, num_blocks=3)
    with pytest.raises(ValueError, match="seed -1"):
        vec.async_reset(-1)
    assert_misuse_raises(vec, make_any(make_any.small(), 6, num_blocks=3, backend="serial"))
    vec.send(vec.blocks[1])
    assert vec.recv() is vec.blocks[1]


def test_several_blocks_may_be_held_and_come_back_in_any_order(make_any):
    vec = make_any(make_any.small(), 6, num_blocks=3)
    vec.async_reset(0)
    assert {vec.recv().index for _ in range(3)} == {0, 1, 2}
    vec.send(vec.blocks[2])
    vec.send(vec.blocks[0])
    assert {vec.recv().index for _ in range(2)} == {0, 2}
    assert [b.index for b in vec.hold_all()] == [0, 1, 2]


@pytest.mark.parametrize("native", [False, True])
def test_the_first_ready_block_comes_first(make, parallel, native):
    vec = make(ToyFactory(native=native), 6, num_blocks=3, num_workers=3)
    vec.async_reset(0)
    naps = {0: 6, 1: 0, 2: 3}
    for block in vec.hold_all():
        vec.send(block, np.array([[1, naps[block.index]], [1, 0]], np.int32))
    assert [vec.recv().index for _ in range(3)] == [1, 2, 0]


@pytest.mark.parametrize("native", [False, True])
def test_rows_of_a_held_block_stay_untouched(make, native):
    vec = make(ToyFactory(native=native), 6, num_blocks=3)
    vec.async_reset(0)
    held = vec.hold_all()[1]
    before = flat(held.rows)
    for _ in range(5):
        for other in (vec.blocks[0], vec.blocks[2]):
            vec.send(other, np.ones((other.size, 2), np.int32) * [1, 0])
        time.sleep(0.01)
        assert {vec.recv().index, vec.recv().index} == {0, 2}
    assert_same(flat(held.rows), before)


def test_reset_gives_up_held_blocks_and_waits_for_steps(make_any):
    factory = make_any.small() if make_any.on_gpu else ToyFactory(agents=2)
    tape = tape_for(factory.spec, 4, 6)
    vec = make_any(factory, 6)
    vec.async_reset(8)
    block = vec.recv()
    vec.send(block, np.full((block.size, 2), [1, 1], np.int32))
    vec.recv()
    vec.async_reset(3)
    assert_same(play(vec, tape), reference(factory, tape, num_envs=6)[0])


@pytest.mark.parametrize("native", [False, True])
def test_timeout_leaves_the_block_in_flight(make, parallel, native):
    vec = make(ToyFactory(native=native), 2, num_blocks=1, num_workers=2)
    vec.async_reset(0)
    block = vec.recv(timeout=30.0)
    vec.send(block, np.array([[1, 6], [1, 0]], np.int32))
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"0\.1 s"):
        vec.recv(timeout=0.1)
    assert time.monotonic() - start < 0.28
    assert vec.recv() is block


def test_other_threads_run_while_recv_waits(make, parallel):
    vec = make(ToyFactory(), 2, num_blocks=1, num_workers=2)
    vec.async_reset(0)
    block = vec.recv()
    vec.send(block, np.array([[1, 8], [1, 0]], np.int32))
    ran = threading.Event()
    threading.Timer(0.05, ran.set).start()
    vec.recv()
    assert ran.is_set()


def test_closing(make_any):
    vec = make_any(make_any.small(), 6, num_blocks=2)
    vec.async_reset(0)
    block = vec.recv()
    reward = block.rows.reward.copy()
    vec.close()
    vec.close()
    for call in (
        vec.recv,
        vec.hold_all,
        vec.state_dict,
        lambda: vec.send(block),
        lambda: vec.async_reset(0),
        lambda: vec.load_state_dict({}),
    ):
        with pytest.raises(VectorError, match="closed"):
            call()
    assert (block.rows.reward == reward).all()  # memory lives as long as a view of it


def test_state_of_another_run_is_refused(make_any):
    vec = make_any(make_any.small(), 6, num_blocks=2)
    vec.async_reset(0)
    vec.hold_all()
    state = vec.state_dict()
    if make_any.on_gpu:
        others = [
            (small_grid(), 5, "expected"),
            (small_grid(room_size=[7, 7]), 6, "expected"),
            (small_grid(observation="dense"), 6, "obs/obs is uint8"),
        ]
    else:
        others = [(ToyFactory(), 5, r"obs/a is uint8 \(6, 2, 3\), expected")]
    for factory, num_envs, message in others:
        other = make_any(factory, num_envs, num_blocks=1, **{} if make_any.on_gpu else {"backend": "serial"})
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(state)


def test_impossible_numbers_are_named():
    for keys, message in (
        (
            {"backend": "workers", "num_workers": 8},
            r"num_workers=8.*env.num_envs=6.*nearest counts are 6, 3, 2",
        ),
        ({"num_blocks": 7}, r"async_factor=7.*more blocks"),
        ({"num_blocks": 0}, "async_factor=0"),
        ({"backend": "threads", "num_threads": True}, "num_threads=True"),
        ({"backend": "worker"}, "did you mean 'workers'"),
        ({"worker_timeout_s": 0}, "worker_timeout_s"),
        ({"num_envs": 0}, r"num_envs=0: expected"),
        ({"first_env": -1}, r"first_env=-1: expected"),
        ({"first_env": 3, "total_envs": 8}, r"total_envs=8: .*first_env\+num_envs=9"),
    ):
        with pytest.raises(UserError, match=message):
            make_vector(ToyFactory(), **{"num_envs": 6, **keys})
