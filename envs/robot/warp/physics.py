"""Steps worlds of one model with MuJoCo Warp; its arrays are torch tensors that share its memory.

    physics = Physics(How(path, frame_skip=5, preset="exact", forces=True, reads=("xpos",)), num_envs, device)
    physics.arrays["qpos"]          # [num_envs, nq] float32
    physics.step(); physics.forward()

On a GPU, each call launches a CUDA graph that was captured here, on torch's current stream. Where torch captures a
graph there, its work becomes part of that graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.warp.compile.together import compile_together
from metta_fast.envs.robot.warp.how import with_room
from metta_fast.envs.robot.warp.simulation import STATE, How, Simulation

FLOATS = (
    *STATE,
    *("qfrc_actuator", "qfrc_constraint", "cinert", "cvel", "cfrc_ext", "xpos", "xipos", "site_xpos"),
    *("ten_length", "ten_velocity", "xquat", "sensordata"),
)
"""mjData's arrays that rules read or write, float32, in the order of mf_world (world.h)."""
KINDS = {
    "NEFC": "constraints (env.params.njmax)",
    "NJMAX_NNZ": "entries of the constraints' Jacobian (env.params.njmax)",
    "BROADPHASE": "pairs of geoms that may touch (env.params.nconmax)",
    "NARROWPHASE": "contacts (env.params.nconmax)",
    "CCD": "contacts of convex geoms (env.params.nconmax)",
    "HFIELD": "contacts with a height field (env.params.nconmax)",
    "NVMAX": "active degrees of freedom",
    "EPA_HORIZON": "faces of a collision's polytope",
}
"""MuJoCo Warp's bits for what did not fit → in words; a solver that stops at its limit of iterations is none."""
_BITS = {
    name: bit for bit, name in enumerate(("NEFC", "NJMAX_NNZ", "BROADPHASE", "NARROWPHASE", "CCD", "HFIELD"))
}
_BITS |= {"NVMAX": 7, "EPA_HORIZON": 8}
LOST = sum(1 << _BITS[name] for name in KINDS)
"""Bits after which a step is less exact."""


def what_was_lost(bits: int) -> list[str]:
    """Returns in words what did not fit."""
    return [words for name, words in KINDS.items() if bits & 1 << _BITS[name]]


NO_ROOM = ("Failed to allocate", "Array shapes must not exceed")
"""Words of Warp's messages."""


@contextmanager
def _room_for(num_envs: int) -> Iterator[None]:
    """Raises UserError where Warp finds no memory."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if not any(words in str(error) for words in NO_ROOM):
            raise
        raise UserError(
            f"env.num_envs={num_envs}: these robots do not fit the device's memory ({error}); give fewer, or a smaller "
            "env.params.njmax and env.params.nconmax"
        ) from error


class Physics:
    """Holds the model and num_envs worlds of it on one device.

    Attributes:
        how: what is simulated, with the njmax and nconmax that were found.
        simulation: Warp's model and data.
        compiled: kernels' modules that were compiled for it, and the seconds that took.

    Raises:
        UserError: MuJoCo Warp does not support the model (its message names the element), or no memory.
    """

    def __init__(self, how: How, num_envs: int, device: torch.device) -> None:
        import warp

        warp.config.log_level = warp.LOG_WARNING
        warp.init()
        self._warp = warp
        self.device, self.num_envs = device, num_envs
        self.how = how = with_room(how)
        self._place = warp.get_device("cpu" if device.type == "cpu" else f"cuda:{device.index or 0}")
        with _room_for(num_envs):
            self.simulation = Simulation(how, num_envs, self._place)
        self.mjm = self.simulation.mjm
        self.arrays = {name: self._array(name) for name in FLOATS} | self._of_the_model()
        """Tensors that rules read and write, by their names in world.h."""
        self.own: dict[str, Tensor] = {
            name: warp.to_torch(getattr(self.simulation.model, name)) for name in self.simulation.own
        }
        """Fields of Warp's model that each world has of its own, [num_envs, …]."""
        self._streams: dict[int, Any] = {}
        self._graphs: dict[str, Any] = {}
        with _room_for(num_envs):
            self._build()

    def step(self) -> None:
        """Makes the physics steps of one step, then the contact forces if they are wanted."""
        self._run("step", self.simulation.step)

    def forward(self) -> None:
        """Computes what rules read where an episode begins."""
        if self.simulation.derives:
            self._run("forward", self.simulation.forward)

    def draw(self) -> None:
        """Renders the worlds' cameras, after `forward`."""
        self._run("draw", self.simulation.draw)

    def write(self, rows: Sequence[Any]) -> None:
        """Writes the pictures into rows (simulation.py), in one launch for each camera."""
        if self._place.is_cuda and not torch.cuda.is_current_stream_capturing():
            with self._warp.ScopedStream(self._stream(), sync_enter=False):
                self.simulation.write(rows)
        else:
            self._run("write", lambda: self.simulation.write(rows))

    def used_bytes(self) -> int:
        """Returns the bytes that Warp has allocated in this process on the device, also for other robots."""
        if not self._place.is_cuda:
            return 0
        return int(self._warp.get_mempool_used_mem_current(self._place))

    # ---- arrays ----

    def _array(self, name: str) -> Tensor:
        array = getattr(self.simulation.data, name)
        if array.size == 0:
            return torch.zeros((self.num_envs, 0), device=self.device)
        if not array.is_contiguous or array.shape[0] != self.num_envs:
            raise RuntimeError(
                f"MuJoCo Warp's {name} is {array.shape}, expected a contiguous array of all worlds"
            )
        tensor: Tensor = self._warp.to_torch(array)
        if tensor.dtype != torch.float32:
            raise RuntimeError(f"MuJoCo Warp's {name} is {tensor.dtype}, expected float32")
        return tensor

    def _of_the_model(self) -> dict[str, Tensor]:
        """Returns arrays of the model, and the worlds' bits of what did not fit."""
        values = {
            "body_mass": self.mjm.body_mass,
            "init_qpos": self.mjm.qpos0,
            "init_qvel": np.zeros(self.mjm.nv),
        }
        found = {name: torch.from_numpy(v.astype(np.float32)).to(self.device) for name, v in values.items()}
        return found | {"overflow": self._warp.to_torch(self.simulation.data.overflow)}

    # ---- steps ----

    def _build(self) -> None:
        """Compiles the kernels, and captures the graphs on a GPU. The worlds' state is not kept."""
        works: dict[str, Callable[[], None]] = {
            "step": self.simulation.step,
            "forward": self.simulation.forward,
        }
        self.compiled = compile_together(self.simulation)
        if self.how.drawn is not None:
            self.simulation.make_context()
            works["draw"] = self.simulation.draw
        for work in works.values():
            work()
        if not self._place.is_cuda:
            return
        torch.cuda.synchronize(self.device)
        self._warp.synchronize_device(self._place)
        for name, work in works.items():
            with self._warp.ScopedCapture(self._place, force_module_load=False) as capture:
                work()
            self._graphs[name] = capture.graph
        self._warp.synchronize_device(self._place)

    def _run(self, name: str, work: Callable[[], None]) -> None:
        if not self._place.is_cuda:
            work()
        elif torch.cuda.is_current_stream_capturing():
            self._into_capture(work)
        else:
            self._warp.capture_launch(self._graphs[name], stream=self._stream())

    def _into_capture(self, work: Callable[[], None]) -> None:
        """Adds the work to the graph that torch captures. Warp has to be told of the capture: its memory and the
        solver's loop then become nodes of that graph too, and fail otherwise."""
        warp, stream = self._warp, self._stream()
        with warp.ScopedStream(stream, sync_enter=False):
            warp.capture_begin(
                stream=stream, force_module_load=False, external=True, capture_mode=warp.CaptureMode.GLOBAL
            )
            try:
                work()
            finally:
                warp.capture_end(stream=stream)

    def _stream(self) -> Any:
        """Returns torch's current stream as Warp's, one object for each: with a second one Warp loses it."""
        handle = torch.cuda.current_stream(self.device).cuda_stream
        if not handle:
            return self._place.null_stream
        if handle not in self._streams:
            self._streams[handle] = self._warp.Stream(self._place, cuda_stream=handle)
        return self._streams[handle]
