"""Tests in which order blocks, jobs and mail are taken, when a watcher looks, and which waits count as hanging."""

from __future__ import annotations

import ctypes
import threading
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from metta_fast.contracts.batch_state import load_rows, save_rows
from metta_fast.contracts.errors import NonFiniteError
from metta_fast.contracts.slab import new_rows, slab_rows, slab_size
from metta_fast.envs.native._pool import Pool
from metta_fast.envs.native._sync import STEP, Board, Memory, Ready, Station, board_size
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.vector import base as vector_base
from metta_fast.vector import make_vector
from metta_fast.vector import workers as workers_backend
from tests.vector.suite import BACKENDS, FACTORIES
from tests.vector.toys import JOB, ToyFactory

PATIENCE_S = 30.0


def test_blocks_are_received_in_the_order_in_which_they_became_ready() -> None:
    ready = Ready(5)
    for order in ((3, 0, 4, 1, 2), (1, 2), (2, 4, 1)):
        for block in order:
            ready.depart(block)
        for block in order:
            ready.push(block)
        assert [ready.wait(PATIENCE_S) for _ in order] == list(order)
        assert ready.wait(0.0) == -1  # none twice
        assert ready.in_flight == 0


def test_blocks_in_flight_cannot_be_held() -> None:
    ready = Ready(3)
    ready.depart(1)
    with pytest.raises(ValueError, match="in flight"):
        ready.hold_all()
    assert ready.num_held == 0
    ready.push(1)
    ready.wait(PATIENCE_S)
    ready.hold_all()
    assert ready.num_held == 3
    assert [ready.is_held(block) for block in range(-1, 4)] == [False, True, True, True, False]


def test_a_pool_takes_the_job_that_was_submitted_first() -> None:
    begun, gate, order = threading.Event(), threading.Event(), list[int]()

    def job(number: int) -> Any:
        def run(_: Any, lo: int, hi: int) -> int:
            order.append(number)
            if number == 4 and len(order) == 1:
                begun.set()
                gate.wait(PATIENCE_S)
            return 0

        return JOB(run)

    jobs = [job(number) for number in range(5)]
    ready = Ready(5)
    pool = Pool(ready, [(ctypes.cast(one, ctypes.c_void_p).value, 0, 1) for one in jobs], 1)
    pool.step(4)
    assert begun.wait(PATIENCE_S)
    for number in (2, 0, 3, 1):
        pool.step(number)
    gate.set()
    assert [ready.wait(PATIENCE_S) for _ in range(5)] == order == [4, 2, 0, 3, 1]
    assert pool.close(PATIENCE_S)


@pytest.mark.parametrize("chunks", [1, 3, 7, 50])
@pytest.mark.parametrize("count", [1, 7, 10])
def test_a_pools_chunks_cover_a_job_once_and_end_with_it(count: int, chunks: int) -> None:
    ranges: list[tuple[int, int]] = []
    job = JOB(lambda _, lo, hi: ranges.append((lo, hi)) or 0)
    ready = Ready(1)
    pool = Pool(ready, [(ctypes.cast(job, ctypes.c_void_p).value, 0, count)], 2, chunks=chunks)
    for _ in range(3):
        ranges.clear()
        pool.step(0)
        assert ready.wait(PATIENCE_S) == 0
        assert sorted(i for lo, hi in ranges for i in range(lo, hi)) == list(range(count))
        assert len(ranges) <= min(chunks, count)
    assert pool.close(PATIENCE_S)


def test_a_fault_of_a_pools_job_wakes_the_receiver() -> None:
    job = JOB(lambda _, lo, hi: 1)
    ready = Ready(1)
    pool = Pool(ready, [(ctypes.cast(job, ctypes.c_void_p).value, 0, 4)], 1)
    pool.step(0)
    assert ready.wait(PATIENCE_S) == -2 or ready.wait(PATIENCE_S) == -2  # the block may come before its fault
    assert pool.close(PATIENCE_S)


def test_a_worker_does_its_oldest_mail_first_and_counts_what_it_finished() -> None:
    memory = Memory(board_size(2, 4))
    board = Board(memory, 2, [(0, 2), (0, 2), (1, 2), (0, 1)])
    stations = [Station(memory, w, [None] * 4) for w in range(2)]
    for block in (3, 1, 0, 2):
        board.step(block)
    mine = ([3, 1, 0], [1, 0, 2])
    for w, expected in enumerate(mine):
        assert board.is_busy(w)
        for done, block in enumerate(expected):
            assert board.progress(w) == done
            assert stations[w].next() == (block, STEP)
            stations[w].finish(block)
        assert board.progress(w) == 3
        assert not board.is_busy(w)
    assert [board.ready.wait(PATIENCE_S) for _ in range(4)] == [3, 1, 0, 2]


@pytest.mark.parametrize("kind", FACTORIES)
def test_arrays_of_the_slab_are_aligned_and_apart(kind: str) -> None:
    spec = FACTORIES[kind]().spec
    for envs in (1, 3, 7):
        agents = envs * spec.agents_per_env
        memory = Memory(slab_size(spec, agents))
        rows = slab_rows(spec, agents, np.frombuffer(memory, np.uint8))
        arrays = [array for array in (*rows.obs.values(), *rows[1:]) if array.size]
        places = sorted((array.ctypes.data, array.ctypes.data + array.nbytes) for array in arrays)
        assert all(start % 64 == 0 for start, _ in places)
        assert all(end <= start for (_, end), (start, _) in pairwise(places))
        assert places[0][0] >= memory.address
        assert places[-1][1] <= memory.address + slab_size(spec, agents)
        assert all(not array.any() for array in arrays)
        assert all(a.shape == b.shape for a, b in zip(rows[1:], new_rows(spec, agents)[1:]))


@pytest.mark.parametrize("keys", BACKENDS.values(), ids=BACKENDS)
def test_a_watcher_looks_after_block_0_alone_and_before_it_steps(keys: dict[str, Any]) -> None:
    with make_vector(ToyFactory(), 6, num_blocks=3, **keys) as vec:
        seen: list[bool] = []
        vec.watchers.append(lambda: seen.append(vec.ready.is_held(0)))
        vec.async_reset(0)
        received = [vec.recv().index for _ in range(3)]
        for _ in range(4):
            for index in received:
                vec.send(vec.blocks[index], np.zeros((2, 2), np.int32))
            received = [vec.recv().index for _ in range(3)]
        vec.send(vec.blocks[1], np.zeros((2, 2), np.int32))
        vec.recv()
        assert seen == [True] * 5


@pytest.mark.parametrize("keys", [BACKENDS["threads"], BACKENDS["workers"]], ids=["threads", "workers"])
def test_a_pause_of_the_whole_program_is_no_hang(
    keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that leaps by an hour at each look, as after a laptop's sleep or a debugger's stop."""
    now = iter(range(0, 1 << 40, 3600))
    for module in (vector_base, workers_backend):
        monkeypatch.setattr(
            module, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _: None)
        )
    with make_vector(ToyFactory(), 4, num_blocks=2, worker_timeout_s=20.0, **keys) as vec:
        vec.async_reset(0)
        for block in vec.hold_all():
            vec.send(block, np.array([[1, 8], [1, 0]], np.int32))
        vec.hold_all()


class Point(gymnasium.Env):
    """Takes continuous actions, and keeps them."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, index: int) -> None:
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_action_that_is_not_finite_reaches_no_environment(value: float) -> None:
    with make_vector(PythonEnvFactory(Point), 4, num_blocks=2) as vec:
        vec.async_reset(0)
        block = vec.hold_all()[1]
        wrong = np.zeros((2, 2), np.float32)
        wrong[1, 0] = value
        with pytest.raises(NonFiniteError, match="in environment 3 "):
            vec.send(block, wrong)
        block.rows.action[...] = wrong  # as a rollout writes them
        with pytest.raises(NonFiniteError, match="in environment 3 "):
            vec.send(block)
        vec.send(block, np.ones((2, 2), np.float32))
        vec.recv()
        given = [action for batch in vec.batches for env in batch.envs for action in env.env.actions]
        assert np.array(given).tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("name", ["obs", "reward", "mask", "action"])
def test_rows_of_another_dtype_or_shape_are_refused_and_nothing_is_changed(name: str) -> None:
    rows = new_rows(ToyFactory().spec, 3)
    for change in (lambda x: x.astype(np.float64), lambda x: x[:2], lambda x: x[None]):
        state = save_rows(rows)
        for array in (*state["obs"].values(), *(v for k, v in state.items() if k != "obs")):
            array[...] = 1
        if name == "obs":
            state["obs"]["b"] = change(state["obs"]["b"])
        else:
            state[name] = change(state[name])
        with pytest.raises(
            ValueError, match=f"state of another run: {'obs/b' if name == 'obs' else name} is"
        ):
            load_rows(rows, state)
        assert not any(array.any() for array in (*rows.obs.values(), *rows[1:]))
    load_rows(rows, state | save_rows(rows))
