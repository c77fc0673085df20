"""Tests what GpuVector has beside the contract (tests/vector/test_contract.py): rows into buffers, CUDA graphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from metta_fast.vector import VectorError, gpu_engine, make_vector
from metta_fast.vector.gpu_rows import TensorRows, on_host
from tests.cuda.engines import (
    ENGINES,
    OnHost,
    Twins,
    assert_rows,
    assert_states,
    buffers_for,
    busy_actions,
    gpu_vector,
    needs_card,
)
from tests.vector.suite import assert_same, assert_states_equal, check_same_bytes, play, small_grid, tape_for

ENVS, LENGTH = 11, 23


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


def by_cpu(factory, tape, *, seed=3, stagger=False, num_envs=ENVS):
    with make_vector(factory, num_envs, backend="serial") as vec:
        vec.async_reset(seed, stagger=stagger)
        return play(vec, tape), vec.state_dict()


@pytest.mark.parametrize("shared", [gpu_engine.SHARED_BYTES, 0])
@pytest.mark.parametrize("shape", ["warp", "split"])
def test_every_way_of_launching_gives_the_cpus_bytes(engine, shape, shared, monkeypatch):
    monkeypatch.setattr(gpu_engine, "SHARED_BYTES", shared)  # 0: maps are built where the states are
    factory = small_grid()
    tape, seed = tape_for(factory.spec, LENGTH, ENVS), 2**64 - 3
    vec = OnHost(gpu_vector(engine, factory, ENVS, 3, shape=shape))
    check_same_bytes(vec, factory, tape, *by_cpu(factory, tape, seed=seed), seed, on_gpu=True)


def test_a_wrong_way_of_launching_is_refused(engine):
    for wrong in ({"shape": "square"}, {"warps": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            gpu_vector(engine, small_grid(), 6, **wrong)


def test_blocks_step_apart(engine):
    """Only the block that was sent changes; blocks come back in the order of the sends."""
    vec = gpu_vector(engine, small_grid(), 6, 3)
    vec.async_reset(0)
    assert [b.index for b in vec.hold_all()] == [0, 1, 2]
    assert [(b.start, b.stop) for b in vec.blocks] == [(0, 6), (6, 12), (12, 18)]
    before = on_host(vec.rows)
    for index in (2, 0):
        vec.send(vec.blocks[index], np.ones((6, 2), np.int32))
    assert [vec.recv().index, vec.recv().index] == [2, 0]
    after = on_host(vec.rows)
    assert_rows(before.slice(6, 12), after.slice(6, 12), "block 1")
    assert not after.reset[:6].any()
    assert not after.reset[12:].any()


# ---- attached ----


def test_rows_go_into_the_buffers(engine):
    """Epochs of 4 rows: nothing but the rows of a step is written, and stats only where an episode ended."""
    twins = Twins(engine, small_grid(), 5, horizon=4)
    vec, b = twins.vec, twins.buffers
    twins.reset(1)
    assert (b.obs["obs"][:4] == 77).all()
    assert b.mask[4].all()
    assert b.reset[4].all()
    for call in (vec.recv, lambda: vec.send(vec.blocks[0])):
        with pytest.raises(VectorError):
            call()
    rng = np.random.default_rng(0)
    for row in range(12):
        b.reward.fill_(77)
        b.stats.fill_(77)
        twins.step(busy_actions(rng, 15))
        t = row % 4
        assert (b.reward[[i for i in range(4) if i != t]] == 77).all()
        ended = (b.terminal | b.truncation)[t]
        assert (b.stats[t][~ended] == 77).all()
    assert len(vec.hold_all()) == 1


def test_attached_states_go_on_anywhere(engine):
    """After an epoch: attached GPU → CPU, and back into other buffers."""
    factory = small_grid()
    tape = tape_for(factory.spec, 12, 5)
    expected, state = by_cpu(factory, tape, num_envs=5)
    vec = gpu_vector(engine, factory, 5)
    buffers = buffers_for(vec, 6)
    vec.attach(buffers)
    vec.async_reset(3)
    buffers.action.copy_(torch.from_numpy(tape[:6]))
    vec.build_ahead()
    for t in range(6):
        vec.step_row(t)
    saved = vec.state_dict()
    with make_vector(factory, 5, backend="serial", num_blocks=2) as cpu:
        cpu.load_state_dict(saved)
        rest = play(cpu, tape[6:], first=False)
    assert_same(rest, {k: v[6:] for k, v in expected.items()})
    other = gpu_vector(engine, factory, 5)
    buffers = buffers_for(other, 6)
    other.attach(buffers)
    other.load_state_dict(saved)
    buffers.action.copy_(torch.from_numpy(tape[6:]))
    other.build_ahead()
    for t in range(6):
        other.step_row(t)
    assert_states_equal(other.state_dict(), state, on_gpu=True)


def test_maps_are_built_ahead(engine):
    """Once, for all that have none; one that a vector has not built is an error where it is needed, not a wrong map."""
    factory = small_grid(max_steps=3)
    vec = gpu_vector(engine, factory, 5)
    buffers = buffers_for(vec, 8)
    buffers.action.zero_()
    vec.attach(buffers)
    vec.async_reset(1)
    assert vec.build_every == 4
    assert not vec.engine.ready.any()
    vec.build_ahead()
    assert vec.engine.ready.all()
    built = vec.engine.next.clone()
    vec.build_ahead()
    for t in range(3):
        vec.step_row(t)
    torch.testing.assert_close(vec.engine.next, built, rtol=0, atol=0)
    vec.step_row(3)
    assert not vec.engine.ready.any()
    assert (vec.states != built).any(1).all()  # the number of steps so far
    assert (vec.states != built).sum() <= 4 * 5
    vec.async_reset(1)
    vec.build_ahead()
    vec.load_state_dict(vec.state_dict())
    assert not vec.engine.ready.any()
    if engine == "emulated":  # on a card it would end the process's context
        for t in range(3):
            vec.step_row(t)
        with pytest.raises(AssertionError, match="trap"):
            vec.step_row(3)


def test_buffers_of_another_run_are_refused(engine):
    vec = gpu_vector(engine, small_grid(), 5)
    with pytest.raises(ValueError, match="buffers of 18 agents"):
        vec.attach(buffers_for(gpu_vector(engine, small_grid(), 6), 4))
    with pytest.raises(ValueError, match=r"rows\.obs/obs is"):
        vec.attach(buffers_for(gpu_vector(engine, small_grid(observation="tokens"), 5), 4))


@pytest.mark.gpu
@needs_card
@pytest.mark.parametrize("shape", ["warp", "split"])
def test_captured_in_a_graph(shape):
    """Replayed over several epochs and a reset with another seed, maps built on a second stream, as in a rollout."""
    horizon, envs = 8, 512
    twins = Twins("card", small_grid(max_steps=13), envs, horizon=horizon, shape=shape)
    vec, b = twins.vec, twins.buffers
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def epoch() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            vec.build_ahead()
        for array in (*b.obs.values(), b.mask, b.reset):
            array[0].copy_(array[horizon])
        torch.cuda.current_stream().wait_stream(side)
        for t in range(horizon):
            vec.step_row(t)

    vec.async_reset(0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        epoch()
    rng = np.random.default_rng(5)
    for seed in (11, 2**63 + 12):
        twins.reset(seed, stagger=True)
        for number in range(4):
            tape = np.stack([busy_actions(rng, vec.num_agents) for _ in range(horizon)])
            b.action.copy_(torch.from_numpy(tape))
            graph.replay()
            for t in range(horizon):
                twins.rows.action[...] = tape[t]
                twins.batch.step()
                found = {
                    name: getattr(b, name)[t]
                    for name in ("action", "reward", "terminal", "truncation", "stats")
                }
                found |= {name: getattr(b, name)[t + 1] for name in ("mask", "reset")}
                rows = TensorRows({"obs": b.obs["obs"][t + 1]}, **found)
                assert_rows(twins.rows, rows, f"epoch {number} step {t}")
            assert_states(vec, twins.batch, f"epoch {number}")


@pytest.mark.gpu
@needs_card
def test_make_vector_makes_it():
    with make_vector(small_grid(), ENVS, backend="gpu", device=torch.device("cuda")) as vec:
        vec.async_reset(1)
        assert vec.recv().rows.obs["obs"].is_cuda
