"""Implements vector.backend=gpu: kernels step native environments; states and rows are in the GPU's memory.

    vec = GpuVector(factory, 512)
    vec.attach(buffers)                        rows go straight into Buffers from now on
    vec.async_reset(seed)                      writes obs, mask, reset of row T, the held row
    for t in range(T):
        if t % vec.build_every == 0:
            vec.build_ahead()                  next maps, concurrently with the policy's work
        vec.step_row(t)                        action[t] → reward, terminal, truncation, stats of row t and
                                               obs, mask, reset of row t+1

    gpu_engine.py (states, launches) ─► this: contracts/device_vector.py, and the blocks of contracts/vector.py

Everything is a launch on torch's current stream: the host never waits, and everything but `async_reset` may be
captured in CUDA graphs. Without `attach` it is an ordinary vector (contracts/vector.py) whose rows are tensors: recv
returns a block whose rows are ready for work on the same stream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts import batch_state as states
from metta_fast.contracts.closing import Closing
from metta_fast.contracts.device_vector import DeviceRows, DeviceVector, check_buffers
from metta_fast.contracts.env import Array, Rows
from metta_fast.contracts.gpu_program import GpuFactory, Launch
from metta_fast.contracts.slab import split
from metta_fast.contracts.vector import Block, VectorError
from metta_fast.runtime.torch_setup import with_index
from metta_fast.vector.gpu_engine import GpuEngine, Load, load_module
from metta_fast.vector.gpu_rows import (
    TensorRows,
    buffer_rows,
    copy_rows,
    on_host,
    own_rows,
    put_actions,
    put_rows,
)


def build_and_step(vec: DeviceVector, t: int) -> None:
    """Calls `vec.step_row(t)`, and before it `vec.build_ahead` where that is due. Rows start at 0 and come in order."""
    if vec.build_every and t % vec.build_every == 0:
        vec.build_ahead()
    vec.step_row(t)


class GpuVector(Closing):
    """Implements VectorEnv (contracts/vector.py) and DeviceVector (contracts/device_vector.py) for native environments.

    Args:
        num_blocks: contiguous ranges of environments for recv and send; has no effect once attached.
        shape, warps, load: as for GpuEngine (gpu_engine.py), which also lists the errors raised.
    """

    capturable = True

    def __init__(
        self,
        factory: GpuFactory,
        num_envs: int,
        num_blocks: int = 1,
        device: torch.device | str = "cuda",
        *,
        first_env: int = 0,
        total_envs: int | None = None,
        shape: str = "warp",
        warps: int | None = None,
        load: Load = load_module,
    ) -> None:
        self.spec = factory.spec
        self.first_env = first_env
        self.total_envs = first_env + num_envs if total_envs is None else total_envs
        self.device = with_index(device)
        self.engine = GpuEngine(
            factory,
            num_envs,
            self.device,
            first_env=first_env,
            total_envs=self.total_envs,
            shape=shape,
            warps=warps,
            load=load,
        )
        self.num_envs, self.num_agents = num_envs, self.engine.num_agents
        self.build_every = self.engine.build_every
        self.slab: Array = np.empty(0, np.uint8)
        self.env_ranges = split(num_envs, num_blocks)
        self._build = self.engine.builder(0, num_envs)
        self._attached = False
        self._closed = ""
        self._flight: deque[int] = deque()
        self._held: set[int] = set()
        self._step_rows: list[list[Launch]] = []
        self._take(own_rows(self.spec, self.num_agents, self.device))

    @property
    def states(self) -> Tensor:
        """uint8 [num_envs, bytes of one state]."""
        return self.engine.states

    # ---- attached: the buffers' rows ----

    def attach(self, buffers: DeviceRows) -> None:
        """Writes rows into `buffers` from now on. `rows` and `blocks` then show its row T (obs, mask, reset) and T−1
        (the other arrays). Reset or load a state afterwards.

        Raises:
            ValueError: the buffers are for another environment or on another device.
        """
        self._check_open()
        check_buffers(buffers, self.num_agents, self.device)
        horizon = buffers.horizon
        self._attached = True
        self._flight.clear()
        self._held.clear()
        self._take(buffer_rows(buffers, horizon - 1))
        envs = self.num_envs
        self._step_rows = [self.engine.steps(buffer_rows(buffers, t), 0, envs) for t in range(horizon)]

    def build_ahead(self) -> None:
        """Launches kernels that build the next map of every environment without one. Call it before the first
        `step_row` after a reset, a loaded state or `attach`, then at least once every `build_every` rows. It may run on
        any stream that is ordered after one `step_row` and before the next."""
        self._build()

    def step_row(self, t: int) -> None:
        """Launches the step from row t to row t+1 of the buffers. An environment whose episode has ended ignores its
        action and starts its next episode; the others step."""
        for launch in self._step_rows[t]:
            launch()

    # ---- blocks and states: contracts/vector.py ----

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        self._check_open()
        self.engine.set_seed(seed)
        self._reset[stagger]()
        self._held = set(range(len(self.blocks))) if self._attached else set()
        self._flight = deque(() if self._attached else range(len(self.blocks)))

    def recv(self, timeout: float | None = None) -> Block:
        self._check_open()
        if not self._flight:
            raise VectorError("recv with no block in flight: send one, or call async_reset first")
        index = self._flight.popleft()
        self._held.add(index)
        return self.blocks[index]

    def send(self, block: Block, actions: Array | Tensor | None = None) -> None:
        self._check_open()
        if self._attached:
            raise VectorError("send after attach: the buffers hold the rows, step_row steps them")
        index = block.index
        if index not in self._held or self.blocks[index] is not block:
            raise VectorError(
                f"send of block {index}, which is not held: recv gives a block, send gives it back once"
            )
        if actions is not None:
            put_actions(block, actions)
        for launch in self._block_steps[index]:
            launch()
        self._held.remove(index)
        self._flight.append(index)

    def hold_all(self) -> list[Block]:
        self._check_open()
        while self._flight:
            self.recv()
        if not self.ready:
            raise VectorError("no block was ever in flight: call async_reset first")
        return list(self.blocks)

    @property
    def ready(self) -> bool:
        """Whether every block is held. If attached: whether row T is valid."""
        return len(self._held) == len(self.blocks)

    def notes(self) -> list[str]:
        """Returns no messages: kernels have none."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Returns a state that CPU backends can load too. Waits for the GPU. If attached, call it between epochs."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """Copies the state on the GPU. Returns a function that waits for the copy and returns it as `state_dict`
        does."""
        self._check_open()
        if not self.ready:
            raise VectorError(
                f"state_dict with {len(self._held)} of {len(self.blocks)} blocks held: hold_all first"
            )
        copied, rows, seed = self.states.clone(), copy_rows(self._rows), self.engine.seed

        def state() -> dict[str, Any]:
            envs = {"states": copied.cpu().numpy(), "seed": seed}
            return {"envs": envs, "rows": states.save_rows(on_host(rows))}

        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._check_open()
        envs = np.asarray(state["envs"]["states"], np.uint8)
        if envs.shape != self.states.shape:
            raise ValueError(
                f"state is {envs.shape} (envs, bytes), expected {tuple(self.states.shape)}: it was saved with "
                "another configuration or another number of environments"
            )
        host = on_host(self._rows)
        states.load_rows(host, state["rows"])
        put_rows(self._rows, host)
        self.states.copy_(torch.from_numpy(envs.copy()))
        self.engine.ready.zero_()
        self.engine.set_seed(int(state["envs"]["seed"]))
        self._flight.clear()
        self._held = set(range(len(self.blocks)))

    def close(self) -> None:
        self._closed = "the vector is closed"

    # ---- parts ----

    def _check_open(self) -> None:
        if self._closed:
            raise VectorError(self._closed)

    def _take(self, rows: TensorRows) -> None:
        """Uses these rows: shows and resets them and, without buffers, steps them."""
        a, engine = self.spec.agents_per_env, self.engine
        self._rows = rows
        self.rows = cast("Rows", rows)
        self.blocks = tuple(
            Block(i, lo * a, hi * a, cast("Rows", rows.slice(lo * a, hi * a)))
            for i, (lo, hi) in enumerate(self.env_ranges)
        )
        self._reset = [engine.reset(rows, stagger=stagger) for stagger in (False, True)]
        self._block_steps = [
            [engine.builder(lo, hi), *engine.steps(rows, lo, hi)] for lo, hi in self.env_ranges
        ]
