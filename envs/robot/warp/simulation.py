"""Steps worlds of one model with MuJoCo Warp, on one of Warp's devices. Knows nothing of torch.

    how = How(path, frame_skip=5, preset="exact", forces=True, reads=("xpos",))
    simulation = Simulation(how, 4096, warp.get_device())
    simulation.step(); simulation.forward()

Importing this module imports neither Warp nor MuJoCo, so that what it says of arrays can be read without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from metta_fast.contracts.errors import UserError
from metta_fast.envs.robot.warp import trim
from metta_fast.envs.robot.warp.draw.context import Context, Drawn
from metta_fast.envs.robot.warp.presets import apply

STATE = ("qpos", "qvel", "ctrl", "act", "act_dot", "qacc", "qacc_warmstart", "time")
"""Arrays that a step begins from: all that a world's future depends on. MuJoCo Warp's step computes everything else
again from them before it reads it, also in worlds that were reset since."""
POSES = ("xpos", "xquat", "xipos", "site_xpos")
PLACES = ("cinert", "ten_length")
MOTION = ("cvel", "ten_velocity", "qfrc_actuator")
SOLVED = ("qfrc_constraint", "sensordata")
FORCES = ("cfrc_ext",)
"""Contact forces on bodies: computed after a step only; 0 where an episode begins (world.h), as on the CPU."""
DERIVED = (*MOTION, *POSES, *PLACES, *SOLVED, *FORCES)
"""Arrays that follow from the state, and are known after a forward only."""


class How(NamedTuple):
    """What is simulated, and what is read of it."""

    path: str
    """The MJCF file."""
    frame_skip: int
    preset: str
    """A name of presets.py."""
    forces: bool
    """Contact forces on bodies (cfrc_ext) are wanted after a step."""
    reads: tuple[str, ...]
    """Of DERIVED: what rules read where an episode begins."""
    njmax: int | None = None
    nconmax: int | None = None
    """Constraints and contacts that each world has room for; None: found by a trial (room.py)."""
    own: tuple[str, ...] = ()
    """Fields of the model that each world has of its own (own_fields.py)."""
    drawn: Drawn | None = None
    """Pictures that are drawn of each world; None: none."""


def how_from(values: Sequence[Any]) -> How:
    """Returns what was written as JSON, where tuples are lists."""
    tuples: list[Any] = [tuple(value) if isinstance(value, list) else value for value in values]
    how = How(*tuples)
    if how.drawn is None:
        return how
    drawn: list[Any] = list(how.drawn)
    return how._replace(drawn=Drawn(tuple(drawn[0]), *drawn[1:]))


class Simulation:
    """Holds Warp's model and data of num_envs worlds. Work is launched on the device's current stream.

    Attributes:
        mjm: mujoco.MjModel, as the preset changed it.
        timestep: the model's own, in seconds.
        notes: what differs from the model's own step.
        own: fields that each world has of its own.
        context: renders the worlds' cameras, after `make_context`.

    Raises:
        UserError: MuJoCo Warp does not support the model (its message names the element).
    """

    def __init__(self, how: How, num_envs: int, place: Any, *, own_envs: int | None = None) -> None:
        """place: warp.Device. own_envs: for how many worlds the model has fields of their own; None: num_envs."""
        import mujoco
        import mujoco_warp
        import warp

        self._mjw, self._warp = mujoco_warp, warp
        self.how, self.num_envs, self.place = how, num_envs, place
        with quiet_mujoco():
            self.mjm = mujoco.MjModel.from_xml_path(how.path)
        self.timestep = float(self.mjm.opt.timestep)
        change = apply(self.mjm, how.preset)
        self.notes, self.substeps = change.notes, how.frame_skip * change.substeps
        self._derive = stage(how.reads, drawn=how.drawn is not None)
        self.context: Context | None = None
        if self._derive and (
            self.mjm.opt.integrator == mujoco.mjtIntegrator.mjINT_DISCRETE or _sleeps(self.mjm)
        ):
            self._derive = "all"
        with warp.ScopedDevice(place):
            try:
                trim.add_flags(self.mjm, how.own)
                self.own = tuple(name for name in how.own if getattr(self.mjm, name).size)
                self.model = mujoco_warp.put_model(self.mjm, dict.fromkeys(self.own, own_envs or num_envs))
            except (NotImplementedError, ValueError) as error:
                raise UserError(
                    f"{how.path}: MuJoCo Warp cannot step this model: {' '.join(str(error).split())}; type "
                    "env.device=cpu"
                ) from error
            self.model.opt.graph_conditional = change.early_stop
            self.model.opt.warn_overflow = 0  # the worlds' bits are read instead (vector.py)
            trim.tune(self.model, self.mjm, how.reads, drawn=how.drawn is not None)
            self.data = mujoco_warp.make_data(self.mjm, nworld=num_envs, nconmax=how.nconmax, njmax=how.njmax)
        self._trimmed = trim.Trimmed(self.mjm, self.data, how.own)

    def step(self) -> None:
        """Makes the physics steps of one step, then the contact forces if they are wanted."""
        with self._warp.ScopedDevice(self.place), self._trimmed:
            for _ in range(self.substeps):
                self._mjw.step(self.model, self.data)
            if self.how.forces:
                self._mjw.rne_postconstraint(self.model, self.data)

    @property
    def forwards(self) -> int:
        """How often a step evaluates the physics."""
        import mujoco

        return self.substeps * (4 if self.mjm.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4 else 1)

    @property
    def derives(self) -> bool:
        """Whether `forward` does anything."""
        return self._derive != ""

    def forward(self) -> None:
        """Computes `reads` from the state. Nothing that a step begins from is changed."""
        mjw, model, data = self._mjw, self.model, self.data
        with self._warp.ScopedDevice(self.place), self._trimmed:
            if self._derive == "all":
                mjw.forward(model, data)
            elif self._derive == "poses":
                mjw.kinematics(model, data)
            elif self._derive:
                mjw.fwd_kinematics(model, data)
                if self._derive == "motion":
                    mjw.transmission(model, data)
                    mjw.fwd_velocity(model, data)
                    mjw.fwd_actuation(model, data)

    def make_context(self, num_envs: int | None = None) -> None:
        """Makes what draws how.drawn. num_envs: None: of all worlds."""
        assert self.how.drawn is not None
        with self._warp.ScopedDevice(self.place):
            self.context = Context(self.mjm, self.how.drawn, num_envs or self.num_envs)

    def draw(self) -> None:
        """Renders the cameras of all worlds as `forward` has left them."""
        assert self.context is not None
        with self._warp.ScopedDevice(self.place):
            self.context.draw(self.model, self.data)

    def write(self, rows: Sequence[Any]) -> None:
        """Writes the pictures. rows: for each camera, warp.array [num_envs, size · size, channels] uint8."""
        assert self.context is not None
        with self._warp.ScopedDevice(self.place):
            for camera, row in enumerate(rows):
                self.context.write(camera, row)


@contextmanager
def quiet_mujoco() -> Iterator[None]:
    """Drops MuJoCo's warnings, which it prints otherwise: the CPU's side logs those on the user's own models."""
    import mujoco

    was = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(was)


def stage(reads: tuple[str, ...], *, drawn: bool = False) -> str:
    """Returns which part of a forward computes `reads`: "" (none), "poses", "places", "motion" or "all".

    Args:
        drawn: the places of cameras and lights are wanted too.
    """
    wanted = {*reads, *(PLACES if drawn else ())}
    for name, arrays in (("all", SOLVED), ("motion", MOTION), ("places", PLACES), ("poses", POSES)):
        if wanted & set(arrays):
            return name
    return ""


def _sleeps(mjm: Any) -> bool:
    import mujoco

    return bool(mjm.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP)
