"""Environments in C on the GPU: the kernels give the CPU's bits. Emulated on the CPU, or on a card (gpu)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import metta_fast
from metta_fast import folder_factory
from metta_fast.cli import main
from metta_fast.contracts.errors import UserError
from metta_fast.runtime.nvrtc.compile import CompileError, compile_source
from metta_fast.scaffold.new_env import new_env
from metta_fast.vector import make_vector
from tests.cuda.engines import ENGINES, OnHost, Twins, gpu_vector, needs_card
from tests.cuda.herd import write_herd
from tests.cuda.test_compile import _has_nvrtc
from tests.vector.suite import check_same_bytes, play

GAMES = Path(metta_fast.__file__).parent / "envs/games"
ENVS = ("walk", "herd", "herd-lanes", "cartpole", "snake", "breakout")
needs_nvrtc = pytest.mark.skipif(not _has_nvrtc(), reason="needs cuda-bindings and NVRTC")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METTA_FAST_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def factory_of(tmp_path, cache):
    """Makes the factory of one of ENVS."""

    def make(name: str, **keys):
        if name == "walk":
            return folder_factory(new_env("walk", tmp_path)[0].parent, **{"max_steps": 9, **keys})
        if name.startswith("herd"):
            folder = write_herd(tmp_path, lanes=name == "herd-lanes")
            return folder_factory(folder, **{"agents_per_env": 35, "max_steps": 13, **keys})
        more = {"snake": {"size": 5}, "breakout": {"lives": 1, "repeat": 16}}
        return folder_factory(GAMES / name, **{"max_steps": 18, **more.get(name, {}), **keys})

    return make


def tape_of(spec, length, num_envs, seed=0):
    """Random actions [length, agents, width]."""
    rng, shape = np.random.default_rng(seed), (length, num_envs * spec.agents_per_env, spec.action.width)
    if spec.action.kind == "box":
        return rng.uniform(-1, 1, shape).astype(np.float32)
    return rng.integers(0, spec.action.nvec, shape, dtype=np.int32)


@pytest.mark.parametrize(
    ("name", "shape", "engine"),
    [
        pytest.param(name, shape, *engine.values, marks=engine.marks)
        for engine in ENGINES
        for name in (ENVS if engine.values == ("card",) else ("herd", "herd-lanes", "snake"))
        for shape in ("warp", "split")
        if shape == "warp" or name.startswith("herd")
    ],
)
def test_the_kernels_give_the_cpus_bits(name, shape, engine, factory_of):
    """Rows, statistics and states, over many ends; saved states go on in other vectors, on the CPU and on the GPU."""
    factory, envs, length = factory_of(name), *((5, 24) if engine == "emulated" else (11, 500))
    tape, seed = tape_of(factory.spec, length, envs), 2**64 - 3
    with make_vector(factory, envs, backend="serial") as vec:
        vec.async_reset(seed)
        expected, state = play(vec, tape), vec.state_dict()
    assert (expected["terminal"] | expected["truncation"]).any()
    vec = OnHost(gpu_vector(engine, factory, envs, 2, shape=shape))
    check_same_bytes(vec, factory, tape, expected, state, seed, on_gpu=True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["walk", "breakout"])
def test_rows_go_into_the_buffers(name, engine, factory_of):
    """Staggered starts, and a resume in the middle."""
    envs, length = (3, 20) if engine == "emulated" else (1024, 200)
    factory = factory_of(name)
    twins = Twins(engine, factory, envs, horizon=4)
    assert twins.vec.build_every == 0
    twins.reset(11, stagger=True)
    for step, actions in enumerate(tape_of(factory.spec, length, envs)):
        twins.step(actions)
        if step == 15:
            twins.resume()


@pytest.mark.parametrize("engine", ENGINES)
def test_parts_of_a_run_give_the_same(engine, factory_of):
    """Environments by their global ids, however they are shared out."""
    factory, tape = factory_of("snake"), tape_of(factory_of("cartpole").spec, 20, 6)
    with make_vector(factory, 6, backend="serial") as vec:
        vec.async_reset(1, stagger=True)
        expected = play(vec, tape)
    vec = OnHost(gpu_vector(engine, factory, 3, first_env=3, total_envs=6))
    vec.async_reset(1, stagger=True)
    for name, found in play(vec, tape[:, 3:]).items():
        if name != "action_mask":  # there is none
            np.testing.assert_array_equal(found, expected[name][:, 3:], err_msg=name)


@needs_nvrtc
@pytest.mark.parametrize("name", ENVS)
def test_nvrtc_compiles_it(name, factory_of):
    code = compile_source(factory_of(name).gpu_program().source, 90)
    assert b".text.mf_step" in code
    assert b"mf_build" not in code


@needs_nvrtc
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('#include "philox.h"', '#include "philox.h"\n#include <math.h>', "math.h"),
        ("s->step++;", "s->step += (int32_t)drand48();", 'identifier "drand48" is undefined'),
        ("s->step++;", "walk_state *t = (void *)s;\n t->step++;", r"walk.h\(\d+\): error: .*void"),
    ],
)
def test_rules_that_a_gpu_cannot_compile(before, after, message, tmp_path, factory_of):
    """One line with the place, and the CPU as the cure."""
    program = factory_of("walk").gpu_program()
    header = tmp_path / "walk/walk.h"
    header.write_text(header.read_text().replace(before, after))
    with pytest.raises(CompileError, match=message) as raised:
        compile_source(program.source, 90)
    text = str(raised.value)
    assert "walk does not compile for the GPU" in text
    assert "type vector.backend=threads" in text
    assert "\n" not in text


def test_parameters_too_large_for_a_kernel(tmp_path, factory_of):
    factory_of("walk")
    header = tmp_path / "walk/walk.h"
    header.write_text(
        header.read_text().replace("float step_reward;", "float step_reward;\n    double table[600];")
    )
    factory = folder_factory(tmp_path / "walk")
    with pytest.raises(UserError, match=r"walk_params has \d+ bytes, a GPU takes at most 4000"):
        factory.gpu_program()


@pytest.mark.gpu
@needs_card
@pytest.mark.parametrize("name", ENVS)
def test_captured_in_a_graph(name, factory_of):
    """Replayed over several epochs and another seed."""
    horizon, envs = 8, 300
    factory = factory_of(name)
    twins = Twins("card", factory, envs, horizon=horizon)
    graph, b = torch.cuda.CUDAGraph(), twins.buffers
    twins.vec.async_reset(0)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for array in (*b.obs.values(), b.mask, b.reset):
            array[0].copy_(array[horizon])
        for t in range(horizon):
            twins.vec.step_row(t)
    for seed in (11, 2**63 + 12):
        twins.reset(seed, stagger=True)
        for epoch in range(4):
            tape = tape_of(factory.spec, horizon, envs, epoch)
            b.action.copy_(torch.from_numpy(tape))
            graph.replay()
            for actions in tape:
                twins.rows.action[...] = actions
                twins.batch.step()
            np.testing.assert_array_equal(b.obs["obs"][horizon].cpu().numpy(), twins.rows.obs["obs"])
            np.testing.assert_array_equal(b.reward[horizon - 1].cpu().numpy(), twins.rows.reward)
            np.testing.assert_array_equal(twins.vec.states.cpu().numpy(), twins.batch.states)


@pytest.mark.gpu
@needs_card
@pytest.mark.parametrize("name", ["walk", "herd", "cartpole", "snake", "breakout"])
def test_it_trains_on_the_gpu(name, tmp_path, factory_of, monkeypatch, capsys):
    """A short training, a resume that continues, and an evaluation on the CPU."""
    factory_of(name)
    monkeypatch.chdir(tmp_path)
    what = (
        f"env.path=./{name}"
        if name in ("walk", "herd")
        else f"env={'cartpole_c' if name == 'cartpole' else name}"
    )
    more = ["env.agents_per_env=3"] if name == "herd" else []
    words = ["train", what, *more, "env.device=cuda", "env.num_envs=64", "trainer.batch_size=2048",
             "trainer.minibatch_size=1024", "trainer.bptt_horizon=32", "run.name=r"]  # fmt: skip
    if name == "herd":
        words = [word.replace("2048", "6144") for word in words]
    assert main([*words, "trainer.total_timesteps=20000"]) == 0, capsys.readouterr().err
    assert main(["train", "resume=runs/r", what, "trainer.total_timesteps=40000"]) == 0, (
        capsys.readouterr().err
    )
    assert main(["eval", "runs/r", "--episodes", "2"]) == 0, capsys.readouterr().err
