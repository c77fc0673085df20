"""Runs a robot task's rules over MuJoCo Warp's arrays: one launch for each stage of a step, for all worlds.

    engine = Engine(factory, physics, first_env, total_envs)
    launches = engine.at(rows)              # of one row of the buffers
    launches.act(); physics.step(); launches.step(); physics.forward(); launches.begin()

Where models are randomised, `first` and `step` also give new episodes their own numbers of the model. world.h says what
a stage does. On a GPU they are kernels that NVRTC compiles from the task's own header; on the CPU the same code is in
the extension _rules. A launch is asynchronous, on torch's current stream.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts.device_vector import DeviceRows
from metta_fast.contracts.env import Array
from metta_fast.contracts.gpu_program import Source
from metta_fast.envs.robot.randomize import Record
from metta_fast.envs.robot.warp._rules import ROBOT_BYTES, run, task_facts
from metta_fast.envs.robot.warp.own_fields import LANES, Fields, OwnFields
from metta_fast.envs.robot.warp.physics import FLOATS, LOST, Physics
from metta_fast.envs.robot.warp.robot import Robot
from metta_fast.runtime.nvrtc.compile import compile_source
from metta_fast.runtime.nvrtc.launch import Module, architecture

HERE = Path(__file__).resolve().parent
THREADS = 64
"""Threads of a block, each with one world."""
PRIVILEGED = "privileged"
"""The leaf that only the critic sees."""
MOST_INFO = 32
"""MF_MOST_INFO of world.h."""
CURE = (
    "a task's header uses only robot.h, kit.h and what C and C++ have in common on a GPU; to step on the CPU, type "
    "env.device=cpu"
)
ROBOT = np.dtype(
    [("before", "f4", 8)]
    + [
        (name, "i4")
        for name in ("episode", "step", "pending", "fresh", "warnings", "overflow", "unstable", "unused")
    ]
)
"""mf_robot of world.h: one world's own state."""
OVERFLOW, UNSTABLE = (int(ROBOT.fields[name][1]) // 4 for name in ("overflow", "unstable"))  # type: ignore[index]
"""Places of these in the state as int32."""
POINTERS = (*FLOATS, "overflow", "body_mass", "init_qpos", "init_qvel", "robots", "sums", "summed", "stat_of")
SIZES = (
    "num_envs",
    "total_envs",
    "stagger",
    "max_steps",
    "limit_is_terminal",
    "obs_size",
    "num_info",
    "num_stats",
)


class World(ctypes.Structure):
    """mf_world of world.h, field for field."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in (*POINTERS, "seed", "late", "task")),
        *((name, ctypes.c_float) for name in ("timestep", "dt")),
        *(
            (name, ctypes.c_int32)
            for name in ("nq", "nv", "nu", "na", "nbody", "nsite", "ntendon", "nsensordata")
        ),
        ("first_env", ctypes.c_uint32),
        *((name, ctypes.c_int32) for name in (*SIZES, "lost", "privileged_size", "redraw")),
        ("random", Record),
        ("fields", Fields),
    ]


class Rows(ctypes.Structure):
    """mf_world_rows of world.h, field for field."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            "action",
            "last_obs",
            "obs",
            "reward",
            "terminal",
            "truncation",
            "mask",
            "reset",
            "stats",
            "last_privileged",
            "privileged",
        )
    ]


class Launches(NamedTuple):
    """The stages of the step of one row, ready to launch."""

    act: Callable[[], object]
    step: Callable[[], object]
    begin: Callable[[], object]
    first: Callable[[], object]


class Engine:
    """Holds what the rules know about worlds first_env … of a run's total_envs.

    Raises:
        CompileError: the header does not compile for this GPU, or NVRTC is missing.
    """

    def __init__(self, factory: Robot, physics: Physics, first_env: int, total_envs: int) -> None:
        device, num_envs = physics.device, physics.num_envs
        info = factory.task.info
        if len(info) > MOST_INFO:
            raise ValueError(
                f"{factory.task.name}: {len(info)} numbers of info, at most {MOST_INFO} on the GPU"
            )
        self.task, self.num_envs, self.device = factory.task.name, num_envs, device
        record = float_record(factory.record)
        if record.nbytes != (there := task_facts(self.task)[0]):
            raise ValueError(f"{self.task}: options of {record.nbytes} bytes, its struct has {there}")

        def put(values: Array) -> Tensor:
            return torch.from_numpy(values).to(device)

        self.robots = torch.zeros((num_envs, ROBOT_BYTES // 4), dtype=torch.int32, device=device)
        """int32 [num_envs, bytes / 4]: mf_robot of each world."""
        self.sums = torch.zeros((num_envs, max(len(info), 1)), device=device)
        self.seed = torch.zeros(1, dtype=torch.int64, device=device)
        self._held = {
            **physics.arrays,
            "robots": self.robots,
            "sums": self.sums,
            "seed": self.seed,
            "summed": put(np.array([*(name.startswith("reward") for name in info), False], np.int32)),
            "stat_of": put(np.array([*factory.stat_of, 0], np.int32)),
        }
        model = physics.mjm
        sizes = {
            name: int(getattr(model, name))
            for name in ("nq", "nv", "nu", "na", "nbody", "nsite", "ntendon", "nsensordata")
        }
        random = factory.random or Record()
        self._weighs = bool(physics.own)
        self._fields = OwnFields(random, model, physics.own, num_envs, device)
        if random.masses:
            self._held["body_mass"] = physics.own["body_mass"]
        if random.latency[1]:
            self.late = torch.zeros((num_envs, random.latency[1], model.nu), device=device)
            self._held["late"] = self.late
        self.world = World(
            **{name: tensor.data_ptr() for name, tensor in self._held.items()},
            **sizes,
            timestep=physics.simulation.timestep,
            dt=physics.simulation.timestep * factory.frame_skip,
            first_env=first_env,
            num_envs=num_envs,
            total_envs=total_envs,
            max_steps=factory.max_steps,
            limit_is_terminal=factory.limit_is_terminal,
            obs_size=factory.obs_size,
            num_info=len(info),
            num_stats=len(factory.spec.stats),
            lost=LOST,
            privileged_size=prod(factory.spec.obs[PRIVILEGED].shape) if factory.privileged else 0,
            random=random,
            fields=self._fields.struct,
        )
        self._params = (ctypes.c_char * record.nbytes).from_buffer_copy(record.tobytes())
        self._module = (
            load_module(source_of(self.task, record.nbytes), device) if device.type == "cuda" else None
        )

    late: Tensor | None = None
    """float32 [num_envs, greatest latency, nu]: actions that have not taken effect yet; None without latency."""

    def state(self) -> dict[str, Tensor]:
        """Returns the tensors that a world's future depends on, beside the physics'."""
        return {"robots": self.robots, "sums": self.sums} | ({} if self.late is None else {"late": self.late})

    def redraw(self) -> None:
        """Gives all worlds the numbers of the model of the episodes that they are in, after their state was loaded."""
        if self._weighs:
            world = World.from_buffer_copy(self.world)
            world.redraw = 1
            self._launch("weigh", world, Rows())()

    def set_seed(self, seed: int) -> None:
        """Sets the seed of later episodes, 0 … 2^64−1."""
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed {seed}: expected 0 … 2^64−1")
        self.seed.fill_(seed - (1 << 64) if seed >> 63 else seed)

    def at(self, b: DeviceRows, t: int) -> Launches:
        """Returns the stages of the step from row t to row t+1 of the buffers."""
        rows = self._rows(b, t)
        found = Launches(**{work: self._launch(work, self.world, rows) for work in Launches._fields})
        return found._replace(
            step=self._weighed(found.step, self.world, rows),
            first=self._weighed(found.first, self.world, rows),
        )

    def _weighed(self, work: Callable[[], object], world: World, rows: Rows) -> Callable[[], object]:
        """Returns the work, followed by that of weigh.h where worlds have numbers of the model of their own."""
        if not self._weighs:
            return work
        weigh = self._launch("weigh", world, rows)

        def both() -> None:
            work()
            weigh()

        return both

    def _rows(self, b: DeviceRows, t: int) -> Rows:
        obs = b.obs["obs"]
        arrays = {
            "action": b.given_actions(t),
            "last_obs": obs[t],
            "obs": obs[t + 1],
            "reward": b.reward[t],
            "terminal": b.terminal[t],
            "truncation": b.truncation[t],
            "mask": b.mask[t + 1],
            "reset": b.reset[t + 1],
            "stats": b.stats[t],
        }
        if self.world.privileged_size:
            arrays |= {"last_privileged": b.obs[PRIVILEGED][t], PRIVILEGED: b.obs[PRIVILEGED][t + 1]}
        for name, array in arrays.items():
            if not array.is_contiguous():
                raise ValueError(f"rows of {name} are not contiguous")
        return Rows(**{name: array.data_ptr() for name, array in arrays.items()})

    def staggered(self, b: DeviceRows) -> Launches:
        """Returns the stages for row T, where first episodes start in the middle."""
        world = World.from_buffer_copy(self.world)
        world.stagger = 1
        last = b.horizon - 1
        rows = self._rows(b, last)
        first = self._weighed(self._launch("first", world, rows), world, rows)
        return self.at(b, last)._replace(first=first)

    def _launch(self, work: str, world: World, rows: Rows) -> Callable[[], object]:
        if self._module is None:
            addresses = (ctypes.addressof(self._params), ctypes.addressof(world), ctypes.addressof(rows))

            def work_now(_kept: object = (world, rows)) -> None:
                run(work, self.task, *addresses)

            return work_now
        kernel = self._module.kernel(f"mf_world_{work}_kernel")
        if work == "weigh":
            blocks = -(-self._fields.workers * LANES // THREADS)
            return kernel.prepare((blocks, 1), (THREADS, 1), self._params, world, rows)
        return kernel.prepare((-(-self.num_envs // THREADS), 1), (THREADS, 1), self._params, world, rows)


def float_record(record: Array) -> Array:
    """Returns NAME_params with mf_real = float: the same fields, doubles as float32."""
    assert record.dtype.names is not None
    fields = []
    for name in record.dtype.names:
        kind = record.dtype[name]
        fields.append((name, "f4" if kind.base.kind == "f" else kind.base.str, kind.shape))
    out = np.zeros((), np.dtype(fields, align=True))
    for name in record.dtype.names:
        out[name] = record[name]
    return out


def source_of(task: str, params_bytes: int) -> Source:
    """Returns the kernels of a task, for NVRTC."""
    return Source(
        f"robot_{task}",
        f'#define MF_FLOAT\n#define MF_ENV {task}\n#include "{task}.h"\n#include "gpu.h"\n',
        include=(HERE.parent / "tasks", HERE.parent, HERE, HERE.parents[1] / "native", HERE / "nvrtc"),
        options=(
            f"-DMF_PARAMS_BYTES={params_bytes}",
            f"-DMF_ROBOT_BYTES={ROBOT_BYTES}",
            "-DMF_ONE_LANE",
            "--device-as-default-execution-space",
        ),
        cure=CURE,
    )


@functools.cache
def load_module(source: Source, device: torch.device) -> Module:
    """Compiles the kernels, or reads them from the cache on disk, and loads them, once per process."""
    return Module(compile_source(source, architecture(device)), device)
