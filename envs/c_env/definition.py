"""Describes an environment whose rules are a C header (`CEnv`), and makes its factory.

    env = CEnv("snake", obs=Leaf((12, 12), "uint8"), action=ActionSpec("discrete", nvec=(4,)), params={"size": 10})
    factory = env.make(Path("snake/snake.h"), max_steps=500, size=8)     # metta_fast.contracts.env.EnvFactory

metta_fast/envs/c_env/folder.py reads one from a folder (env.path).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.env import ActionSpec, Array, EnvSpec, Leaf
from metta_fast.contracts.errors import UserError
from metta_fast.envs.c_env import library
from metta_fast.envs.c_env.batch import CBatch
from metta_fast.envs.c_env.gpu import CProgram
from metta_fast.envs.frame_recorder import FrameRecorder
from metta_fast.envs.native._batch import aligned

Params = Mapping[str, Any]
TYPES = {0: "int32_t", 1: "float", 2: "another type"}


@dataclass(frozen=True)
class CEnv:
    """Describes an environment in C: everything that is not in its rules header."""

    name: str
    """The prefix of the header's functions, in lower case."""
    obs: Leaf | Callable[[Params], Leaf]
    """One agent's observation; a function of the parameters where they change its shape."""
    action: ActionSpec | Callable[[Params], ActionSpec]
    """One agent's action; int32_t in C if discrete, float if a box."""
    params: Params = field(default_factory=dict)
    """Name → default. Whole numbers and true/false are int32_t members of ENV_params, the others float."""
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Name → the lowest and highest value allowed."""
    stats: tuple[str, ...] = ()
    """Names of the statistics that ENV_finish writes, in order."""
    agents: int | None = 1
    """Agents of an environment; None: any number (env.agents_per_env)."""
    reward_threshold: float | Callable[[Params], float] | None = None
    """The mean return at which it counts as solved (trainer.stop_at_return=solved); a function of the parameters where
    they change it."""
    lanes: bool = False
    """True: ENV_reset and ENV_observe share their work among the lanes of a warp (contract.h), for speed on a GPU."""
    render: Callable[[Array, Array], Array] | None = None
    """Draws an environment for `metta-fast replay`: render(obs, state) → uint8 [height, width, 3], always of one size.
    obs: the agents' observations [agents, *shape]; state: uint8 [bytes], the state of the rules."""

    def make(
        self,
        header: Path,
        *,
        agents_per_env: int = 1,
        max_steps: int = 1000,
        limit_is_terminal: bool = False,
        **params: Any,
    ) -> CFactory:
        """Compiles the rules and makes the factory.

        Raises:
            UserError: an unknown or impossible parameter, rules that do not compile, or rules and CEnv that disagree.
        """
        if self.agents is not None and agents_per_env != self.agents:
            raise UserError(
                f"env.agents_per_env={agents_per_env}: {self.name} has {self.agents}; give {self.agents}"
            )
        values = dict(self.params) | {name: self._checked(name, value) for name, value in params.items()}
        solved = self.reward_threshold
        spec = EnvSpec(
            name=self.name,
            agents_per_env=agents_per_env,
            obs={"obs": self.obs if isinstance(self.obs, Leaf) else self.obs(values)},
            action=self.action if isinstance(self.action, ActionSpec) else self.action(values),
            stats=self.stats,
            max_steps=max_steps,
            native=True,
            cheap_state=True,
            stagger=True,
            reward_threshold=solved(values) if callable(solved) else solved,
        )
        path = library.compile_rules(header, self.name, list(self.params))
        members = {
            "num_agents": agents_per_env,
            "max_steps": max_steps,
            "limit_is_terminal": limit_is_terminal,
        }
        return CFactory(spec, header, path, members | values, lanes=self.lanes, render=self.render)

    def _checked(self, name: str, value: Any) -> Any:
        """Returns a parameter's value in the type of its default."""
        known = list(self.params)
        if name not in known:
            raise UserError(
                f"env.params.{name}: {self.name} has no such key; {did_you_mean(name, known)}"
                f"It has {', '.join(known) or 'none'}"
            )
        default = self.params[name]
        kind = type(default)
        wants = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (kind is not bool and isinstance(value, bool)) or not math.isfinite(value):
            raise UserError(f"env.params.{name}={value!r}: expected {wants}, for example {default}")
        low, high = self.limits.get(name, (-(2**31), 2**31 - 1) if kind is int else (-3e38, 3e38))
        if not low <= value <= high:
            raise UserError(f"env.params.{name}={value!r}: expected {wants} from {low} to {high}")
        return kind(value)


class CFactory:
    """Makes batches of an environment in C (`metta_fast.contracts.env.EnvFactory`). Only configuration is pickled.

    Args:
        header: the rules.
        path: the compiled rules.
        members: what Python writes to ENV_params.
        lanes, render: of the CEnv.

    Raises:
        UserError: the rules and the CEnv disagree.
    """

    def __init__(
        self,
        spec: EnvSpec,
        header: Path,
        path: Path,
        members: dict[str, Any],
        *,
        lanes: bool = False,
        render: Callable[[Array, Array], Array] | None = None,
    ) -> None:
        self.header, self.path, self.members, self.lanes = header, path, members, lanes
        self._render = render
        self.spec = spec
        sizes = self._sizes(self._params())
        self._check(sizes)
        self.spec = replace(spec, gpu=True, state_bytes=sizes["state"])

    def make_batch(self, first_env: int, num_envs: int, total_envs: int) -> CBatch:
        """Makes the environments with global ids first_env … first_env+num_envs-1 of total_envs."""
        loaded, params, spec = library.load(self.path), self._params(), self.spec
        sizes = {
            "batch": int(loaded.mf_batch_size()),
            "state": spec.state_bytes,
            "agents": spec.agents_per_env,
            "max_steps": spec.max_steps,
            "obs": (np.dtype(spec.obs["obs"].dtype), math.prod(spec.obs["obs"].shape)),
            "action": (np.dtype(spec.action.dtype), spec.action.width),
            "stats": (np.float32, len(spec.stats)),
        }
        return CBatch(library.addresses(loaded), params, first_env, num_envs, total_envs, sizes, keep=loaded)

    def gpu_program(self) -> CProgram:
        """Returns the kernels: the same rules, compiled for the GPU."""
        return CProgram(
            self.spec.name,
            self.header,
            self.rules_digest(),
            bytes(self._params()),
            self.spec.state_bytes,
            lanes=self.lanes,
        )

    def make_recorder(self, batch: CBatch) -> FrameRecorder | None:
        """Returns a recorder of the environment's pictures; None without CEnv.render."""
        render = self._render
        return None if render is None else FrameRecorder(lambda: render(*batch.first()))

    def rules_digest(self) -> str:
        """Returns a digest of the rules, without comments and spaces."""
        return library.rules_digest(self.header)

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out what draws: processes that step environments do not have the folder's module."""
        return self.__dict__ | {"_render": None}

    def unseen(self) -> str:
        """Returns what an evaluation's seeds change."""
        return "unseen seeds"

    def _params(self) -> Any:
        """Returns the bytes of ENV_params, prepared."""
        loaded = library.load(self.path)
        found = aligned(loaded.mf_params_size())
        for name, member in library.fields(loaded, len(self.members)).items():
            value, kind = self.members[name], member.kind
            if kind != isinstance(value, float):
                raise UserError(
                    f"{self.spec.name}.h: {self.spec.name}_params has {name} as {TYPES[kind]}, expected "
                    f"{TYPES[int(isinstance(value, float))]} for the default {value!r} in {self.spec.name}.py"
                )
            found[member.at : member.at + 4].view("f4" if kind else "i4")[0] = value
        loaded.mf_prepare(library.ctypes.c_void_p(found.ctypes.data))
        return found

    def _sizes(self, params: Any) -> dict[str, int]:
        out = np.zeros(6, np.int64)
        pointer = library.ctypes.c_void_p
        library.load(self.path).mf_sizes(pointer(params.ctypes.data), pointer(out.ctypes.data))
        names = ("state", "obs", "agents", "action_width", "stats", "action_kind")
        return dict(zip(names, map(int, out), strict=True))

    def _check(self, sizes: dict[str, int]) -> None:
        """Raises UserError where the compiled rules say something else than the spec."""
        spec, leaf = self.spec, self.spec.obs["obs"]
        name, shape = spec.name, list(leaf.shape)
        bytes_of_obs = math.prod(shape) * np.dtype(leaf.dtype).itemsize
        wanted = {
            "obs": (bytes_of_obs, f"obs_size gives {{}} bytes, {leaf.dtype} {shape} has {{}}"),
            "agents": (spec.agents_per_env, "num_agents gives {}, env.agents_per_env is {}"),
            "action_width": (spec.action.width, "action_width is {}, the action in Python has {} numbers"),
            "stats": (len(spec.stats), "stats is {}, Python names {}"),
            "action_kind": (
                int(spec.action.dtype == "float32"),
                "action has kind {}, Python has kind {} (0: int32_t, 1: float)",
            ),
        }
        for key, (want, text) in wanted.items():
            if sizes[key] != want:
                raise UserError(f"{name}.h and {name}.py disagree: {name}_{text.format(sizes[key], want)}")
        if sizes["state"] < 64 or sizes["state"] % 64:
            raise UserError(f"{name}.h: {name}_state_size gives {sizes['state']}, expected a multiple of 64")
