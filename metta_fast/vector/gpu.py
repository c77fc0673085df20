"""gpu: native environments stepped by kernels, states and rows in the GPU's memory.

    vec = GpuVector(factory, 512)
    vec.attach(buffers)                        rows go straight into Buffers from now on
    vec.async_reset(seed)                      writes obs, mask, reset of row T, the held row
    for t in range(T):
        if t % vec.build_every == 0:
            vec.build_ahead()                  next maps of envs that have none: beside the policy's work
        vec.step_row(t)                        action[t] → reward, terminal, truncation, stats of row t and
                                               obs, mask, reset of row t+1

    rules header + gpu_shell.h ─► cuda/compile.py ─► cuda/launch.py ─► mf_reset, mf_build, mf_step

Everything is a launch on torch's current stream: nothing is waited for, and all but `async_reset` may be captured in
CUDA graphs (which outlive a reset: the seed lies in the GPU's memory). The next episode of each env lies beside its
state, made long before it is wanted. It follows from the state and is never saved: another vector, or this one after a
reset, makes it anew. Without `attach` it is a vector as any other
(api.py), with tensors for rows; recv gives a block whose rows are ready for work on the same stream.
"""

from __future__ import annotations

import ctypes
import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metta_fast.buffers.rollout import Buffers
from metta_fast.contracts import batch_state as states
from metta_fast.contracts.closing import Closing
from metta_fast.contracts.env import Array, Rows
from metta_fast.contracts.gpu_program import GpuFactory, Source
from metta_fast.contracts.slab import split
from metta_fast.contracts.vector import Block, VectorError
from metta_fast.runtime.nvrtc.compile import compile_source
from metta_fast.runtime.nvrtc.launch import Module, architecture
from metta_fast.vector.gpu_rows import buffer_rows, copy_rows, named, on_host, own_rows, pointers, put_actions

WARP = 32
AGENTS_OF_A_WARP, MOST_WARPS = 6, 8
"""Whose observations a warp of a step writes, one after another; so many warps at most."""
OBSERVERS = 4
"""Warps of a block that writes observations alone (shape="split")."""
WARM_BYTES = 128 * 1024
"""So much of the envs' states on one multiprocessor is read into its cache before a step."""
BUILD_ENVS = 8
"""MF_BUILD_ENVS of gpu_shell.h."""
SHARED_BYTES = 48 * 1024
"""The shared memory that a block has on every GPU; a larger state is built where it lies."""


class World(ctypes.Structure):
    """mf_world of gpu_shell.h, field for field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("states", "next", "ready", "seed")),
        ("first_env", ctypes.c_uint32),
        *((name, ctypes.c_int32) for name in ("start", "stop", "total_envs", "max_steps", "warm", "scratch")),
    ]


@functools.cache
def load_module(source: Source, device: torch.device) -> Module:
    """Compile (or take from the cache on disk) and load; once a process."""
    return Module(compile_source(source, architecture(device)), device)


def build_and_step(vec: Any, t: int) -> None:
    """`vec.step_row`, with `vec.build_ahead` before it where that is due: rows from 0 on, one after another."""
    if t % vec.build_every == 0:
        vec.build_ahead()
    vec.step_row(t)


class GpuVector(Closing):
    """See the module's docstring; fulfils contracts/vector.py: VectorEnv and contracts/device_vector.py: DeviceVector.

    Args:
        num_blocks: contiguous ranges of environments for recv and send; attached: no meaning.
        shape: "warp": one kernel, a block of `warps` warps per environment (by default more for more agents, whose
            observations they share); "split": one with a thread per
            environment, then one with a warp per agent.
        load: source and device → the module of kernels (tests put an emulator here).

    Raises:
        CompileError: the rules do not compile for this GPU, or NVRTC is missing.
        LaunchError: the driver does not take the code.
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
        load: Callable[[Source, torch.device], Any] = load_module,
    ) -> None:
        if shape not in ("warp", "split"):
            raise ValueError(f"shape={shape!r}: expected 'warp' or 'split'")
        if warps is None:
            warps = min(-(-factory.spec.agents_per_env // AGENTS_OF_A_WARP), MOST_WARPS)
        if not 1 <= warps <= 32:
            raise ValueError(f"warps={warps}: expected 1 … 32")
        self.spec = spec = factory.spec
        self.num_envs, self.num_agents = num_envs, num_envs * spec.agents_per_env
        self.first_env = first_env
        self.total_envs = first_env + num_envs if total_envs is None else total_envs
        if list(spec.obs) != ["obs"]:
            raise ValueError(f"{spec.name}: kernels write one observation array, not {sorted(spec.obs)}")
        self.device = device = _with_index(torch.device(device))
        self._shape, self._warps = shape, warps
        program = factory.gpu_program()
        self._module = load(program.source, device)
        self._table = None if program.table is None else torch.from_numpy(program.table).to(device)
        params = program.params(0 if self._table is None else self._table.data_ptr())
        self._params = (ctypes.c_char * len(params)).from_buffer_copy(params)
        self.states = torch.zeros((num_envs, program.state_bytes), dtype=torch.uint8, device=device)
        """uint8 [num_envs, bytes of one state]."""
        self._next = torch.zeros_like(self.states)
        self._ready = torch.zeros(num_envs, dtype=torch.uint8, device=device)
        """Which envs' next episodes `_next` holds."""
        self.build_every = program.shortest + 1
        """Rows from one `build_ahead` to the next, at most: no env takes two new episodes over within as many."""
        self._seed = torch.zeros(1, dtype=torch.int64, device=device)
        self._seed_value = 0
        self._warm = _warm_bytes(program.state_bytes, num_envs, self._module.multiprocessors)
        self._lanes_bytes = program.lanes_bytes
        self._scratch = program.state_bytes if program.state_bytes <= SHARED_BYTES else 0
        self.slab: Array = np.empty(0, np.uint8)
        self.env_ranges = split(num_envs, num_blocks)
        self._kernels = {
            name: self._module.kernel(f"mf_{name}")
            for name in ("reset", "build", "step", "step_threads", "observe")
        }
        self._build = self._builder(0, num_envs)
        self._buffers: Buffers | None = None
        self._closed = ""
        self._flight: deque[int] = deque()
        self._held: set[int] = set()
        self._step_rows: list[list[Any]] = []
        self._take(own_rows(spec, self.num_agents, device))

    # ---- attached: the buffers' rows ----

    def attach(self, buffers: Buffers) -> None:
        """Write rows into `buffers` from now on. `rows` and `blocks` show its row T (obs, mask, reset) and T−1
        (all else). Reset or load a state afterwards.

        Raises ValueError for buffers of another environment or device.
        """
        self._check_open()
        n, horizon = self.num_agents, buffers.horizon
        if buffers.device != self.device or buffers.num_agents != n:
            raise ValueError(
                f"buffers of {buffers.num_agents} agents on {buffers.device}, expected {n} on {self.device}"
            )
        self._buffers = buffers
        self._flight.clear()
        self._held.clear()
        self._take(buffer_rows(buffers, horizon - 1))
        envs = self.num_envs
        self._step_rows = [self._steps(buffer_rows(buffers, t), 0, envs) for t in range(horizon)]

    def build_ahead(self) -> None:
        """Launch the building of the next map of every env that has none. Before the first `step_row` after a reset,
        a loaded state or `attach`, and then at least once in `build_every` of them; on any stream that is ordered
        between two of them."""
        self._build()

    def step_row(self, t: int) -> None:
        """Launch the step from row t to row t+1 of the buffers: an env whose episode has ended gets its new one and
        that one's rows (its action counts for nothing), the others step."""
        for launch in self._step_rows[t]:
            launch()

    # ---- the contract of api.py ----

    def async_reset(self, seed: int, *, stagger: bool = False) -> None:
        self._check_open()
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed {seed}: expected 0 … 2^64−1")
        self._set_seed(seed)
        self._reset[stagger]()
        self._held = set() if self._buffers is None else set(range(len(self.blocks)))
        self._flight = deque(range(len(self.blocks)) if self._buffers is None else ())

    def recv(self, timeout: float | None = None) -> Block:
        self._check_open()
        if not self._flight:
            raise VectorError("recv with no block in flight: send one, or call async_reset first")
        index = self._flight.popleft()
        self._held.add(index)
        return self.blocks[index]

    def send(self, block: Block, actions: Array | Tensor | None = None) -> None:
        self._check_open()
        if self._buffers is not None:
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
        """True: every block is held; attached, row T is valid."""
        return len(self._held) == len(self.blocks)

    def notes(self) -> list[str]:
        """None: kernels have none to give."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """As of the CPU backends, which can go on from it. Waits for the GPU. Attached: between epochs."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """What `state_dict` would give now, copied on the GPU; the function gives it, and waits only then."""
        self._check_open()
        if not self.ready:
            raise VectorError(
                f"state_dict with {len(self._held)} of {len(self.blocks)} blocks held: hold_all first"
            )
        copied, rows, seed = self.states.clone(), copy_rows(self.rows), self._seed_value

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
        host = on_host(self.rows)
        states.load_rows(host, state["rows"])
        for (_, to), (_, value) in zip(named(self.rows), named(host)):
            to.copy_(torch.from_numpy(value))
        self.states.copy_(torch.from_numpy(envs.copy()))
        self._ready.zero_()
        self._set_seed(int(state["envs"]["seed"]))
        self._flight.clear()
        self._held = set(range(len(self.blocks)))

    def close(self) -> None:
        self._closed = "the vector is closed"

    # ---- parts ----

    def _check_open(self) -> None:
        if self._closed:
            raise VectorError(self._closed)

    def _set_seed(self, seed: int) -> None:
        self._seed_value = seed
        self._seed.fill_(seed - (1 << 64) if seed >> 63 else seed)

    def _world(self, start: int, stop: int) -> World:
        return World(
            self.states.data_ptr(),
            self._next.data_ptr(),
            self._ready.data_ptr(),
            self._seed.data_ptr(),
            self.first_env,
            start,
            stop,
            self.total_envs,
            self.spec.max_steps,
            self._warm,
            self._scratch > 0,
        )

    def _take(self, rows: Rows) -> None:
        """These are the rows that are shown, reset and, without buffers, stepped."""
        a, envs = self.spec.agents_per_env, self.num_envs
        self.rows = rows
        self.blocks = tuple(
            Block(i, lo * a, hi * a, rows.slice(lo * a, hi * a)) for i, (lo, hi) in enumerate(self.env_ranges)
        )
        given = self._params, self._world(0, envs), pointers(self.spec, self.num_agents, rows)
        self._reset = [
            self._by_warps("reset", envs, self._warps, *given, ctypes.c_int32(stagger)) for stagger in (0, 1)
        ]
        self._block_steps = [
            [self._builder(lo, hi), *self._steps(rows, lo, hi)] for lo, hi in self.env_ranges
        ]

    def _builder(self, start: int, stop: int) -> Any:
        """The launch that builds maps for envs [start, stop)."""
        warps = -(-(stop - start) // BUILD_ENVS)
        return self._kernels["build"].prepare(
            (warps, 1), (WARP, 1), self._params, self._world(start, stop), shared=self._scratch
        )

    def _steps(self, rows: Rows, start: int, stop: int) -> list[Any]:
        """Launches that step envs [start, stop); rows: of all agents."""
        args = self._params, self._world(start, stop), pointers(self.spec, self.num_agents, rows)
        envs = stop - start
        if self._shape == "warp":
            return [self._by_warps("step", envs, self._warps, *args)]
        return [
            self._kernels["step_threads"].prepare((-(-envs // WARP), 1), (WARP, 1), *args),
            self._observer(rows, start, stop, OBSERVERS),
        ]

    def _observer(self, rows: Rows, start: int, stop: int, warps: int) -> Any:
        """The launch that writes observations alone; warps: of a block, an agent each."""
        args = self._params, self._world(start, stop), pointers(self.spec, self.num_agents, rows)
        blocks = -(-(stop - start) * self.spec.agents_per_env // warps)
        return self._by_warps("observe", blocks, warps, *args)

    def _by_warps(self, kernel: str, blocks: int, warps: int, *args: Any) -> Any:
        """A launch of blocks of warps that write observations."""
        return self._kernels[kernel].prepare(
            (blocks, 1), (WARP, warps), *args, shared=warps * self._lanes_bytes
        )


def _with_index(device: torch.device) -> torch.device:
    """cuda → cuda:N, as tensors name their device."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _warm_bytes(state_bytes: int, num_envs: int, multiprocessors: int) -> int:
    """How much of each state a step reads ahead: all, or what fits the cache beside its neighbours'."""
    return min(state_bytes, WARM_BYTES // -(-num_envs // multiprocessors) // 32 * 32)
