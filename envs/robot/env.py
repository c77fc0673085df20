"""Provides robots: `RobotFactory` for the vector backends, `RobotSim` for tests and scripts.

factory = RobotFactory("ant", healthy_reward=0.5)
batch = factory.make_batch(0, 64, total_envs=64)             # metta_fast.contracts.env.EnvBatch

sim = RobotSim("ant", seed=7)                                # one env, doubles
obs = sim.reset(); obs, reward, terminal, truncation, info = sim.step(action)
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import zlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.env import ActionSpec, Array, EnvSpec, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import new_rows
from metta_fast.envs.robot._robot import RobotBatch, RobotModel, built_tasks
from metta_fast.envs.robot.randomize import read_randomize
from metta_fast.envs.robot.tasks.task import Task
from metta_fast.envs.robot.warp import packages, unsupported
from metta_fast.envs.robot.warp.presets import check_preset
from metta_fast.machine.installation import command, install_packages
from metta_fast.storage.user_files import is_file, user_path

if TYPE_CHECKING:
    import torch

    from metta_fast.contracts.device_vector import DeviceVector
    from metta_fast.envs.frame_recorder import FrameRecorder
    from metta_fast.envs.robot.viewer import RobotViewer

_BUILT = built_tasks()
TASKS = tuple(sorted(_BUILT))
"""Tasks whose headers were compiled in."""
LOG = logging.getLogger("metta_fast.robot")
PICTURE_S = 0.04
"""Least simulated seconds between two pictures of a replay."""
MOST_SUBSTEPS = 100_000
ON_GPU = ("preset", "njmax", "nconmax")
"""Options without an effect on the CPU."""
MOST_ROOM = 1 << 20
"""Greatest njmax and nconmax."""
ON_UNSTABLE = ("reset", "stop")


def find_task(name: str) -> Task:
    """Returns the task of that name.

    Raises:
        UserError: no such task, or it is not built, or its header has changed since the build.
    """
    header = Path(__file__).parent / "tasks" / f"{name}.h"
    if name not in TASKS:
        if header.is_file() and f"{name}_params" in header.read_text():
            raise UserError(
                f"task={name!r} exists ({header}), but is not built yet; type: {command(f'build {name}')}"
            )
        raise UserError(
            f"task={name!r} is not known; {did_you_mean(str(name), TASKS)}there are {', '.join(TASKS)}"
        )
    if header.is_file() and zlib.crc32(header.read_bytes()) != _BUILT[name]:
        raise UserError(
            f"task={name!r}: {header} was changed since it was built; type: {command(f'build {name}')}"
        )
    task = importlib.import_module(f"metta_fast.envs.robot.tasks.{name}").TASK
    assert isinstance(task, Task)
    return task


def _is_path(xml: str) -> bool:
    return xml.startswith(("~", ".", "/"))


def model_path(xml: str) -> Path:
    """Returns the model's path: `xml` itself if it begins with . / or ~, else one of Gymnasium's own models."""
    if _is_path(xml):
        return user_path(xml)
    spec = importlib.util.find_spec("gymnasium")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"robots take their models from gymnasium, which is not installed: {install_packages('gymnasium')}"
        )
    return Path(spec.submodule_search_locations[0]) / "envs" / "mujoco" / "assets" / xml


class RobotFactory:
    """Makes batches of robots (`metta_fast.contracts.env.EnvFactory`). Pickles by its configuration.

    Args:
        task: one of TASKS.
        max_steps: the time limit; None: the task's default.
        limit_is_terminal: True: the time limit is a terminal instead of a truncation.
        frame_skip: physics substeps per step; None: the task's default.
        on_unstable: on an unstable simulation, "reset" ends its episode and "stop" ends the run.
        privileged: True: adds a leaf for the critic only: float32, qpos, qvel, the actuators' forces
            on the joints (qfrc_actuator) and contact forces on all bodies but the world (cfrc_ext), side by side.
        xml_file: another model for the task, with at least as many joints, actuators, bodies, sites and tendons.
        preset: how robots step on a GPU (warp/presets.py); None: exact. Has no effect on the CPU.
        njmax, nconmax: constraints and contacts that each robot has room for on a GPU; None: found by a trial.
        randomize: how robots differ from the model in each episode, {"mass": [0.8, 1.2], …} (randomize.py).
        quiet: do not log MuJoCo's warnings on your own model (copies use it: the first one has logged them).
        options: arguments of Gymnasium's constructor of the task.

    Raises:
        UserError: an unknown task or option, an invalid value, or a model that MuJoCo cannot load.
    """

    def __init__(
        self,
        task: str = "ant",
        *,
        max_steps: int | None = None,
        limit_is_terminal: bool = False,
        frame_skip: int | None = None,
        on_unstable: str = "reset",
        privileged: bool = False,
        xml_file: str | None = None,
        preset: str | None = None,
        njmax: int | None = None,
        nconmax: int | None = None,
        randomize: Mapping[str, Any] | None = None,
        quiet: bool = False,
        **options: Any,
    ) -> None:
        self.task = find_task(task)
        self._quiet = quiet
        self.max_steps = _whole("max_steps", self.task.max_steps if max_steps is None else max_steps)
        self.frame_skip = _whole(
            "frame_skip", self.task.frame_skip if frame_skip is None else frame_skip, MOST_SUBSTEPS
        )
        self.limit_is_terminal = bool(limit_is_terminal)
        if on_unstable not in ON_UNSTABLE:
            raise UserError(f"on_unstable={on_unstable!r}: expected {' or '.join(ON_UNSTABLE)}")
        self.on_unstable = on_unstable
        if not isinstance(privileged, bool):
            raise UserError(f"privileged={privileged!r}: expected true or false")
        self.privileged = privileged
        self.preset = None if preset is None else check_preset(preset)
        self.njmax = None if njmax is None else _whole("njmax", njmax, MOST_ROOM)
        self.nconmax = None if nconmax is None else _whole("nconmax", nconmax, MOST_ROOM)
        self.xml_file = self.task.xml if xml_file is None else str(xml_file)
        self.options = options
        self.stat_of = tuple(i for i, name in enumerate(self.task.info) if "[" not in name)
        self.record = self.task.record(options, self.model.number)
        self._check_bodies()
        if self.xml_file != self.task.xml:
            self._check_model()
        self.randomize = read_randomize(randomize)
        self.random = self.randomize.record(self.model)
        self.obs_size = int(self.task.obs_size(self.model, self.task.values(self._by_number())))
        obs = {"obs": Leaf((self.obs_size,), "float32")}
        if privileged:
            obs["privileged"] = Leaf((self.model.privileged_size,), "float32")
        low, high = self.model.ctrlrange.T.tolist()
        self.spec = EnvSpec(
            name=self.task.name,
            agents_per_env=1,
            obs=obs,
            action=ActionSpec("box", low=tuple(low), high=tuple(high)),
            privileged=("privileged",) if privileged else (),
            stats=(*(self.task.info[i] for i in self.stat_of), "warnings", "unstable"),
            max_steps=self.max_steps,
            native=True,
            cheap_state=True,
            gpu=True,
            stagger=True,
            notes=True,
        )

    @cached_property
    def model(self) -> RobotModel:
        """Shared by all batches of this process."""
        path = model_path(self.xml_file)
        if not is_file(path):
            raise UserError(f"xml_file={self.xml_file!r}: there is no file {path}")
        return RobotModel(str(path), quiet=self._quiet or not _is_path(self.xml_file))

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> RobotBatch:
        """Makes the environments with global ids first_env … first_env+num_envs-1 of total_envs."""
        return RobotBatch(
            self.model,
            self.task.name,
            self.record,
            first_env=first_env,
            num_envs=num_envs,
            total_envs=total_envs,
            max_steps=self.max_steps,
            limit_is_terminal=self.limit_is_terminal,
            frame_skip=self.frame_skip,
            obs_size=self.obs_size,
            info=self.task.info,
            stat_of=self.stat_of,
            stop_unstable=self.on_unstable == "stop",
            random=self.random,
        )

    def make_device_vector(
        self, num_envs: int, device: torch.device, first_env: int, total_envs: int
    ) -> DeviceVector:
        """Makes the environments on `device` with MuJoCo Warp (contracts/device_vector.py).

        Raises:
            UserError: MuJoCo Warp is missing, in another version, or does not support the model.
        """
        if found := self.gpu_obstacle():
            raise UserError("env.device=cuda: " + "; ".join(found))
        from metta_fast.envs.robot.warp.vector import WarpVector

        return WarpVector(self, num_envs, device, first_env, total_envs)

    def gpu_obstacle(self) -> tuple[str, str] | None:
        """Returns why these robots cannot step on a GPU, with the cure; None if they can."""
        return packages.problem() or unsupported.problem(self.model.path, self.preset)

    def gpu_bytes(self) -> tuple[int, int]:
        """Returns the bytes on the GPU of any number of these robots, and of each, by an estimate."""
        from metta_fast.envs.robot.warp.how import how_of, with_room
        from metta_fast.envs.robot.warp.memory import bytes_of

        return bytes_of(with_room(how_of(self)))

    def gpu_only_if_asked(self) -> str:
        """Returns why env.device=auto leaves robots on the CPU."""
        return "its physics on the GPU (MuJoCo Warp) equals MuJoCo's in distribution only; env.device=cuda chooses it"

    def has_gpu_states(self) -> bool:
        """Returns True: MuJoCo Warp's state is in single precision, and without MuJoCo's other arrays."""
        return True

    def gpu_keys(self) -> tuple[str, ...]:
        """Returns keys that were given and have an effect with env.device=cuda only."""
        return tuple(f"env.params.{name}" for name in ON_GPU if getattr(self, name) is not None)

    def differences(self) -> list[str]:
        """Returns how robots differ from their model, in words, a line for each range."""
        return self.randomize.words()

    def make_recorder(self, batch: RobotBatch) -> FrameRecorder:
        """Returns a recorder of the batch's first robot, about 25 pictures per simulated second.

        Raises:
            UserError: no graphics library works here (render.py).
        """
        from metta_fast.envs.frame_recorder import FrameRecorder
        from metta_fast.envs.robot.render import Renderer

        renderer = Renderer(self.model.path)
        every = max(1, round(PICTURE_S / self.step_s))
        return FrameRecorder(
            lambda: renderer.render(batch.physics(0)), every=every, step_s=self.step_s, close=renderer.close
        )

    def viewer(self) -> RobotViewer:
        """Returns MuJoCo's own viewer."""
        from metta_fast.envs.robot.viewer import RobotViewer

        return RobotViewer(self.model.path)

    def gymnasium_id(self) -> str:
        """Returns the task's name in Gymnasium, or "" if it has none."""
        return self.task.gymnasium_id

    def as_gymnasium(self) -> RobotFactory:
        """Returns a factory of the task with Gymnasium's own options."""
        return RobotFactory(
            self.task.name, max_steps=self.max_steps, limit_is_terminal=self.limit_is_terminal
        )

    @property
    def step_s(self) -> float:
        """Returns the simulated seconds of a step."""
        return float(self.model.timestep * self.frame_skip)

    def __reduce__(self) -> tuple[Any, ...]:
        keys = {
            "max_steps": self.max_steps,
            "limit_is_terminal": self.limit_is_terminal,
            "frame_skip": self.frame_skip,
            "on_unstable": self.on_unstable,
            "privileged": self.privileged,
            "xml_file": self.xml_file,
            "randomize": self.randomize.given(),
            **{name: getattr(self, name) for name in ON_GPU},
            **self.options,
        }
        return _again, (self.task.name, keys)

    def _by_number(self) -> dict[str, Any]:
        """Returns the options, with bodies as numbers."""
        return {**self.options, **{key: float(self.record[key]) for key in self.task.body_options}}

    def _check_bodies(self) -> None:
        for key in self.task.body_options:
            value = float(self.record[key])
            if value != int(value) or not 0 <= value < self.model.nbody:
                raise UserError(
                    f"{self.task.name}: {key}={value:g}, expected the number of a body, "
                    f"0 … {self.model.nbody - 1}, or its name"
                )

    def _check_model(self) -> None:
        """Refuses a model with fewer joints, bodies and so on than the task's rules read."""
        own = RobotModel(str(model_path(self.task.xml)), quiet=True).sizes
        for key, least in own.items():
            if self.model.sizes[key] < least:
                raise UserError(
                    f"xml_file={self.xml_file!r}: {key} is {self.model.sizes[key]}, the task {self.task.name} "
                    f"needs at least {least} (as {self.task.xml})"
                )


def _again(task: str, keys: dict[str, Any]) -> RobotFactory:
    return RobotFactory(task, quiet=True, **keys)


def _whole(key: str, value: Any, most: int = 2**31 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise UserError(f"{key}={value!r}: expected a whole number from 1 to {most}")
    return value


class RobotSim:
    """Steps one robot by hand, in doubles, with next-step autoreset as in training.

    Attributes:
        batch: its RobotBatch. rows: its rows, float32, as training sees them.
    """

    def __init__(
        self, task: str = "ant", *, seed: int = 0, env_id: int = 0, total_envs: int | None = None, **keys: Any
    ) -> None:
        self.factory = RobotFactory(task, **keys)
        self.seed = seed
        self.batch = self.factory.make_batch(env_id, 1, env_id + 1 if total_envs is None else total_envs)
        self.rows = new_rows(self.factory.spec, 1)
        self.batch.bind(self.rows)

    def reset(self) -> Array:
        """Starts the env's first episode and returns its first observation, f64 [obs_size]."""
        self.batch.reset(self.seed)
        return self.obs

    def set_state(self, qpos: Array, qvel: Array) -> Array:
        """Starts an episode in a given state and returns its observation."""
        self.batch.set_state(0, np.array(qpos, np.float64), np.array(qvel, np.float64))
        return self.obs

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, float]]:
        """Returns (observation, reward, terminal, truncation, info). The call after an end only resets.

        Raises:
            ValueError: an action that is not finite.
            EnvError: the simulation cannot continue.
        """
        if not np.isfinite(action).all():
            raise ValueError(f"action {action} is not finite")
        self.rows.action[0] = action
        self.batch.step()
        for text in self.batch.notes().values():
            LOG.warning("warning: %s", text)
        info = dict(zip(self.factory.task.info, self.batch.info[0].tolist()))
        ends = bool(self.rows.terminal[0]), bool(self.rows.truncation[0])
        return self.obs, self.batch.reward_exact(0), *ends, info

    @property
    def obs(self) -> Array:
        """Returns a copy of the last observation, f64 [obs_size]."""
        obs: Array = self.batch.obs_exact[0].copy()
        return obs
