"""Steps worlds of one model with MuJoCo Warp; its arrays are torch tensors that share its memory.

    physics = Physics(path, num_envs, device, frame_skip=5, preset="exact", forces=True, derived=True)
    physics.arrays["qpos"]          # [num_envs, nq] float32
    physics.step(); physics.forward()

On a GPU, each call launches a CUDA graph that was captured here, on torch's current stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.warp.presets import apply
from metta_fast.envs.robot.warp.room import room_for

STATE = ("qpos", "qvel", "ctrl", "act", "act_dot", "qacc", "qacc_warmstart", "time")
"""Arrays that a step begins from: all that a world's future depends on."""
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

    Args:
        path: the MJCF file.
        forces: contact forces on bodies (cfrc_ext) are wanted after a step.
        derived: rules read more than qpos, qvel and ctrl, so that new episodes need a forward.
        njmax, nconmax: constraints and contacts per world; None: found by a trial (room.py).

    Raises:
        UserError: MuJoCo Warp does not support the model (its message names the element), or no memory.
    """

    def __init__(
        self,
        path: str,
        num_envs: int,
        device: torch.device,
        *,
        frame_skip: int,
        preset: str,
        forces: bool,
        derived: bool,
        njmax: int | None = None,
        nconmax: int | None = None,
    ) -> None:
        import mujoco
        import mujoco_warp
        import warp

        warp.config.log_level = warp.LOG_WARNING
        warp.init()
        self._mjw, self._warp = mujoco_warp, warp
        self.device, self.num_envs = device, num_envs
        self._forces, self._derived = forces, derived
        self.mjm = mujoco.MjModel.from_xml_path(path)
        self.timestep = float(self.mjm.opt.timestep)
        """The model's own, in seconds."""
        change = apply(self.mjm, preset)
        self.notes, self.substeps = change.notes, frame_skip * change.substeps
        if njmax is None or nconmax is None:
            found = room_for(self.mjm)
            njmax, nconmax = found[0] if njmax is None else njmax, found[1] if nconmax is None else nconmax
        self.njmax, self.nconmax = njmax, nconmax
        self._place = warp.get_device("cpu" if device.type == "cpu" else f"cuda:{device.index or 0}")
        with warp.ScopedDevice(self._place), _room_for(num_envs):
            try:
                self.model = mujoco_warp.put_model(self.mjm)
                self.model.opt.graph_conditional = change.early_stop
                self.model.opt.warn_overflow = 0  # the worlds' bits are read instead (vector.py)
            except (NotImplementedError, ValueError) as error:
                raise UserError(
                    f"{path}: MuJoCo Warp cannot step this model: {' '.join(str(error).split())}; type env.device=cpu"
                ) from error
            self.data = mujoco_warp.make_data(self.mjm, nworld=num_envs, nconmax=nconmax, njmax=njmax)
        self.arrays = {name: self._array(name) for name in FLOATS} | self._of_the_model()
        """Tensors that rules read and write, by their names in world.h."""
        self._streams: dict[int, Any] = {}
        self._graphs: dict[str, Any] = {}
        with _room_for(num_envs):
            self._build()

    def step(self) -> None:
        """Makes the physics steps of one step, then the contact forces if they are wanted."""
        self._run("step", self._step)

    def forward(self) -> None:
        """Computes all that follows from the state, if the rules read such a thing."""
        if self._derived:
            self._run("forward", self._forward)

    # ---- arrays ----

    def _array(self, name: str) -> Tensor:
        array = getattr(self.data, name)
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
        return found | {"overflow": self._warp.to_torch(self.data.overflow)}

    # ---- steps ----

    def _step(self) -> None:
        for _ in range(self.substeps):
            self._mjw.step(self.model, self.data)
        if self._forces:
            self._mjw.rne_postconstraint(self.model, self.data)

    def _forward(self) -> None:
        self._mjw.forward(self.model, self.data)

    def _build(self) -> None:
        """Compiles the kernels, and captures the graphs on a GPU. The worlds' state is not kept."""
        with self._warp.ScopedDevice(self._place):
            self._step()
            self._forward()
            if self._place.is_cuda:
                torch.cuda.synchronize(self.device)
                self._warp.synchronize_device(self._place)
                work: dict[str, Callable[[], None]] = {"step": self._step, "forward": self._forward}
                for name, calls in work.items():
                    with self._warp.ScopedCapture(self._place, force_module_load=False) as capture:
                        calls()
                    self._graphs[name] = capture.graph
                self._warp.synchronize_device(self._place)

    def _run(self, name: str, calls: Callable[[], None]) -> None:
        if not self._place.is_cuda:
            with self._warp.ScopedDevice(self._place):
                calls()
            return
        self._warp.capture_launch(self._graphs[name], stream=self._stream())

    def _stream(self) -> Any:
        """Returns torch's current stream as Warp's, one object for each: with a second one Warp loses it."""
        handle = torch.cuda.current_stream(self.device).cuda_stream
        if not handle:
            return self._place.null_stream
        if handle not in self._streams:
            self._streams[handle] = self._warp.Stream(self._place, cuda_stream=handle)
        return self._streams[handle]
