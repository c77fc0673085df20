"""Chooses where a test runs GpuVector (emulated on the CPU, or on a GPU), and its reference."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts.env import ActionSpec, EnvSpec, Leaf, Rows
from metta_fast.envs.grid._grid import GridBatch, GridParams
from metta_fast.envs.grid.env import GridSim
from metta_fast.envs.grid.gpu import GridProgram
from metta_fast.envs.grid.names import ACTIONS, OBSERVATIONS, STATS
from metta_fast.vector.gpu import GpuVector
from metta_fast.vector.gpu_rows import TensorRows, on_host
from tests.cuda.emulate import Emulator, has_compiler

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs g++ to build the emulator")
needs_card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
ENGINES = [
    pytest.param("emulated", marks=needs_compiler),
    pytest.param("card", marks=[pytest.mark.gpu, needs_card]),
]


def gpu_vector(engine: str, factory, num_envs: int, num_blocks: int = 1, **more) -> GpuVector:
    if engine == "emulated":
        return GpuVector(factory, num_envs, num_blocks, "cpu", load=Emulator, **more)
    return GpuVector(factory, num_envs, num_blocks, "cuda", **more)


class OnHost:
    """A GpuVector with numpy rows that are copied when a block is received: for tests written for the others."""

    def __init__(self, vec: GpuVector) -> None:
        self.vec, self.spec = vec, vec.spec
        self.rows = on_host(vec.rows)
        self.blocks = tuple(
            replace(block, rows=self.rows.slice(block.start, block.stop)) for block in vec.blocks
        )

    def recv(self, timeout=None):
        index = self.vec.recv(timeout).index
        self._show(index)
        return self.blocks[index]

    def _show(self, index: int) -> None:
        copy_rows(self.blocks[index].rows, on_host(self.vec.blocks[index].rows))

    def send(self, block, actions=None) -> None:
        own = self.vec.blocks[block.index] if self.blocks[block.index] is block else block
        self.vec.send(own, block.rows.action if actions is None else actions)

    def hold_all(self):
        for block in self.vec.hold_all():
            self._show(block.index)
        return list(self.blocks)

    def load_state_dict(self, state) -> None:
        self.vec.load_state_dict(state)
        self.hold_all()

    def __getattr__(self, name):
        return getattr(self.vec, name)


def copy_rows(to: Rows, rows: Rows) -> None:
    for name, value in rows.obs.items():
        to.obs[name][...] = value
    for name in Rows._fields[1:]:
        getattr(to, name)[...] = getattr(rows, name)


class RecordFactory:
    """As GridFactory, from a GRID_CONFIG record and its table of maps."""

    def __init__(self, record, table=None) -> None:
        self.record, self.table = record, table
        kind = tuple(OBSERVATIONS)[int(record["observation"])]
        self.spec = EnvSpec(
            name="grid",
            agents_per_env=int(record["num_agents"]),
            obs={"obs": Leaf(OBSERVATIONS[kind], "uint8")},
            action=ActionSpec("discrete", nvec=(len(ACTIONS), 9)),
            stats=STATS,
            max_steps=int(record["max_steps"]),
            native=True,
        )

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> GridBatch:
        return GridBatch(GridParams(self.record, self.table), first_env, num_envs, total_envs)

    def gpu_program(self) -> GridProgram:
        return GridProgram(self.record, self.table)


def observed_by_warps(engine: str, sim: GridSim, kind: str, warps: int, table=None) -> np.ndarray:
    """As `sim.observe(kind)`, by kernels with `warps` warps a block; table: the simulation's maps, if it has them."""
    record = sim.record.copy()
    record["observation"] = tuple(OBSERVATIONS).index(kind)
    vec = gpu_vector(engine, RecordFactory(record, table), 1)
    vec.states.copy_(torch.from_numpy(sim.state[None]))
    vec.rows.obs["obs"].fill_(0xA5)
    vec.engine.observer(vec.rows, 0, 1, warps)()
    return vec.rows.obs["obs"].cpu().numpy()


def buffers_for(vec: GpuVector, horizon: int) -> Buffers:
    buffers = Buffers.allocate(
        vec.spec,
        num_agents=vec.num_agents,
        horizon=horizon,
        bptt_horizon=horizon,
        state_shape=(0, 0),
        device=vec.device,
    )
    for array in (*buffers.obs.values(), buffers.reward, buffers.stats):
        array.fill_(77)  # what nobody writes is seen
    return buffers


def assert_rows(expected: Rows, found: Rows | TensorRows, what: object) -> None:
    """Bit for bit; statistics where an episode ended. found: tensors or arrays."""
    if isinstance(found.reward, torch.Tensor):
        found = on_host(found)
    for name, value in expected.obs.items():
        np.testing.assert_array_equal(found.obs[name], value, err_msg=f"{what}: obs")
    np.testing.assert_array_equal(
        found.reward.view(np.uint32), expected.reward.view(np.uint32), err_msg=f"{what}: reward"
    )
    for name in ("terminal", "truncation", "mask", "reset"):
        np.testing.assert_array_equal(
            getattr(found, name), getattr(expected, name), err_msg=f"{what}: {name}"
        )
    ends = expected.terminal | expected.truncation
    np.testing.assert_array_equal(found.stats[ends], expected.stats[ends], err_msg=f"{what}: stats")


def assert_states(vec: GpuVector, batch: GridBatch, what: object) -> None:
    np.testing.assert_array_equal(vec.states.cpu().numpy(), batch.states, err_msg=f"{what}: state")


class Twins:
    """The same environments by the CPU, over one batch, and by a GpuVector with buffers; stepped together. Maps are
    built as seldom as may be."""

    def __init__(self, engine: str, factory, num_envs: int, *, horizon: int = 4, **more) -> None:
        self.again = partial(gpu_vector, engine, factory, num_envs, **more)
        self.vec = self.again()
        self.buffers = buffers_for(self.vec, horizon)
        self.vec.attach(self.buffers)
        self.batch = factory.make_batch(0, num_envs, num_envs)
        host = on_host(self.vec.rows)
        self.rows = Rows(
            {k: np.zeros_like(v) for k, v in host.obs.items()}, *(np.zeros_like(v) for v in host[1:])
        )
        self.batch.bind(self.rows)
        self.t = 0
        self.until_build = 0
        """Rows before `build_ahead` is due."""

    def reset(self, seed: int, *, stagger: bool = False) -> None:
        self.until_build = 0
        self.vec.async_reset(seed, stagger=stagger)
        self.batch.reset(seed, stagger=stagger)
        assert_states(self.vec, self.batch, "reset")
        assert_rows(self.rows, self.vec.rows, "reset")

    def resume(self) -> None:
        """Go on in a new vector from what this one saves."""
        saved, old = self.vec.state_dict(), self.vec
        self.vec = self.again()
        self.vec.attach(self.buffers)
        self.vec.load_state_dict(saved)
        self.until_build = 0
        old.close()

    def step(self, actions, *, states: bool = True, build: bool = False) -> None:
        """actions int32 [agents, 2]; build: even if it is not due."""
        b, t, row = self.buffers, self.t % self.buffers.horizon, self.t
        if t == 0:
            for array in (*b.obs.values(), b.mask, b.reset):
                array[0].copy_(array[b.horizon])
        b.action[t].copy_(torch.from_numpy(actions))
        if build or not self.until_build:
            self.vec.build_ahead()
            self.until_build = self.vec.build_every
        self.until_build -= 1
        self.vec.step_row(t)
        self.rows.action[...] = actions
        self.batch.step()
        found = TensorRows(
            {name: leaf[t + 1] for name, leaf in b.obs.items()},
            action=b.action[t],
            reward=b.reward[t],
            terminal=b.terminal[t],
            truncation=b.truncation[t],
            mask=b.mask[t + 1],
            reset=b.reset[t + 1],
            stats=b.stats[t],
        )
        assert_rows(self.rows, found, f"step {row}")
        if states:
            assert_states(self.vec, self.batch, f"step {row}")
        self.t += 1


def busy_actions(rng: np.random.Generator, agents: int) -> np.ndarray:
    """int32 [agents, 2]: much moving and trading, some of everything, some that are wrong."""
    action = rng.choice(9, agents, p=[0.02, 0.33, 0.2, 0.1, 0.14, 0.12, 0.05, 0.02, 0.02])
    arg = rng.integers(0, 9, agents)
    arg[action == 1] = rng.random((action == 1).sum()) < 0.2
    arg[action == 2] = rng.integers(0, 4, (action == 2).sum())
    wrong = rng.random(agents) < 0.03
    action[wrong] = rng.choice([-1, 9, 300, -(2**31)], wrong.sum())
    arg[rng.random(agents) < 0.03] = 2**31 - 1
    return np.stack([action, arg], 1).astype(np.int32)
