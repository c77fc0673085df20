"""Keeps native environments' states on the GPU and prepares the kernel launches that reset, build and step them.

    rules header + gpu_shell.h ─► nvrtc/compile.py ─► nvrtc/launch.py ─► mf_reset, mf_build, mf_step

Place in the flow: only vector/gpu.py uses this, to implement the vector contract. A launch is prepared once for its
rows and environments, then called many times. It runs on torch's current stream and may be captured in a CUDA graph,
which stays valid after a reset because the seed is in the GPU's memory.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch

from metta_fast.contracts.gpu_program import GpuFactory, KernelModule, Launch, Source
from metta_fast.runtime.nvrtc.compile import compile_source
from metta_fast.runtime.nvrtc.launch import Module, architecture
from metta_fast.vector.gpu_rows import TensorRows, pointers

WARP = 32
AGENTS_OF_A_WARP, MOST_WARPS = 6, 8
"""Number of agents whose observations one warp writes in turn, and the largest number of warps per block."""
OBSERVERS = 4
"""Warps of a block that only writes observations (shape="split")."""
WARM_BYTES = 128 * 1024
"""Bytes of environments' states that one multiprocessor reads into its cache before a step."""
BUILD_ENVS = 8
"""MF_BUILD_ENVS of gpu_shell.h."""
SHARED_BYTES = 48 * 1024
"""Bytes of shared memory that a block has on every GPU; a larger state is built in global memory."""
KERNELS = ("reset", "build", "step", "step_threads", "observe")

Load = Callable[[Source, torch.device], KernelModule]


class World(ctypes.Structure):
    """mf_world of gpu_shell.h, field for field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("states", "next", "ready", "seed")),
        ("first_env", ctypes.c_uint32),
        *((name, ctypes.c_int32) for name in ("start", "stop", "total_envs", "max_steps", "warm", "scratch")),
    ]


@functools.cache
def load_module(source: Source, device: torch.device) -> Module:
    """Compiles the kernels, or reads them from the cache on disk, and loads them, once per process."""
    return Module(compile_source(source, architecture(device)), device)


class GpuEngine:
    """Holds the states of num_envs environments, from global id first_env on, of a run's total_envs.

    Args:
        shape: "warp": one kernel, a block of `warps` warps per environment (by default more for more agents, whose
            observations they share); "split": one with a thread per environment, then one with a warp per agent.
        load: function from source and device to the module of kernels (tests pass an emulator).

    Raises:
        CompileError: the rules do not compile for this GPU, or NVRTC is missing.
        LaunchError: the driver refuses the code.
        ValueError: another shape or number of warps, or an observation that is not one array.
    """

    def __init__(
        self,
        factory: GpuFactory,
        num_envs: int,
        device: torch.device,
        *,
        first_env: int,
        total_envs: int,
        shape: str,
        warps: int | None,
        load: Load,
    ) -> None:
        self.spec = spec = factory.spec
        if shape not in ("warp", "split"):
            raise ValueError(f"shape={shape!r}: expected 'warp' or 'split'")
        if warps is None:
            warps = min(-(-spec.agents_per_env // AGENTS_OF_A_WARP), MOST_WARPS)
        if not 1 <= warps <= 32:
            raise ValueError(f"warps={warps}: expected 1 … 32")
        if list(spec.obs) != ["obs"]:
            raise ValueError(f"{spec.name}: kernels write one observation array, not {sorted(spec.obs)}")
        self.num_envs, self.num_agents = num_envs, num_envs * spec.agents_per_env
        self._first_env, self._total_envs = first_env, total_envs
        self._shape, self._warps = shape, warps
        program = factory.gpu_program()
        module = load(program.source, device)
        self._table = None if program.table is None else torch.from_numpy(program.table).to(device)
        params = program.params(0 if self._table is None else self._table.data_ptr())
        self._params = (ctypes.c_char * len(params)).from_buffer_copy(params)
        self.states = torch.zeros((num_envs, program.state_bytes), dtype=torch.uint8, device=device)
        """uint8 [num_envs, bytes of one state]."""
        ahead = program.shortest > 0
        self.next = torch.zeros_like(self.states if ahead else self.states[:0])
        """The next episodes' first states, built ahead. They are computed from `states` and are never saved."""
        self.ready = torch.zeros(num_envs, dtype=torch.uint8, device=device)
        """uint8 [num_envs]: 1 where `next` holds an environment's next episode."""
        self.build_every = program.shortest + 1 if ahead else 0
        """The most rows between two builds: no environment starts two episodes within this many rows. 0: episodes
        are not built ahead."""
        self._seed = torch.zeros(1, dtype=torch.int64, device=device)
        self.seed = 0
        self._warm = _warm_bytes(program.state_bytes, num_envs, module.multiprocessors)
        self._lanes_bytes = program.lanes_bytes
        self._scratch = program.state_bytes if program.state_bytes <= SHARED_BYTES else 0
        self._kernels = {name: module.kernel(f"mf_{name}") for name in KERNELS if ahead or name != "build"}

    def set_seed(self, seed: int) -> None:
        """Sets the seed of later episodes. Raises ValueError for a seed outside 0 … 2^64−1."""
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed {seed}: expected 0 … 2^64−1")
        self.seed = seed
        self._seed.fill_(seed - (1 << 64) if seed >> 63 else seed)

    def reset(self, rows: TensorRows, *, stagger: bool) -> Launch:
        """Returns the launch that resets all environments and writes their first rows."""
        args = *self._args(rows, 0, self.num_envs), ctypes.c_int32(stagger)
        return self._by_warps("reset", self.num_envs, self._warps, *args)

    def builder(self, start: int, stop: int) -> Launch:
        """Returns the launch that builds the next episodes of environments [start, stop) that have none; one that does
        nothing if episodes are not built ahead."""
        if not self.build_every:
            return _nothing
        warps = -(-(stop - start) // BUILD_ENVS)
        return self._kernels["build"].prepare(
            (warps, 1), (WARP, 1), self._params, self._world(start, stop), shared=self._scratch
        )

    def steps(self, rows: TensorRows, start: int, stop: int) -> list[Launch]:
        """Returns the launches that step environments [start, stop). rows: the rows of all agents."""
        args, envs = self._args(rows, start, stop), stop - start
        if self._shape == "warp":
            return [self._by_warps("step", envs, self._warps, *args)]
        return [
            self._kernels["step_threads"].prepare((-(-envs // WARP), 1), (WARP, 1), *args),
            self.observer(rows, start, stop, OBSERVERS),
        ]

    def observer(self, rows: TensorRows, start: int, stop: int, warps: int) -> Launch:
        """Returns the launch that only writes observations. warps: warps per block, each with one agent."""
        blocks = -(-(stop - start) * self.spec.agents_per_env // warps)
        return self._by_warps("observe", blocks, warps, *self._args(rows, start, stop))

    def _args(self, rows: TensorRows, start: int, stop: int) -> tuple[object, ...]:
        return self._params, self._world(start, stop), pointers(self.spec, self.num_agents, rows)

    def _by_warps(self, kernel: str, blocks: int, warps: int, *args: object) -> Launch:
        """Returns a launch of blocks of warps that write observations."""
        return self._kernels[kernel].prepare(
            (blocks, 1), (WARP, warps), *args, shared=warps * self._lanes_bytes
        )

    def _world(self, start: int, stop: int) -> World:
        return World(
            self.states.data_ptr(),
            self.next.data_ptr(),
            self.ready.data_ptr(),
            self._seed.data_ptr(),
            self._first_env,
            start,
            stop,
            self._total_envs,
            self.spec.max_steps,
            self._warm,
            self._scratch > 0,
        )


def _nothing() -> None:
    """Stands for a launch that is not needed."""


def _warm_bytes(state_bytes: int, num_envs: int, multiprocessors: int) -> int:
    """Returns how much of each state a step reads ahead: all, or its share of WARM_BYTES."""
    return min(state_bytes, WARM_BYTES // -(-num_envs // multiprocessors) // 32 * 32)
