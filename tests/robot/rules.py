"""Compiles a robot task's header by itself and runs it on the arrays of any mjData: `Rules`.

The physics is the caller's (Gymnasium's, in the oracle tests), so what differs can only be the rules.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from metta_fast.contracts.env import Array
from metta_fast.envs.robot.tasks.task import Task
from tests.c_compiler import CC

ROOT = Path(__file__).parents[2] / "envs"
ARRAYS = (
    "qpos",
    "qvel",
    "act",
    "ctrl",
    "qfrc_actuator",
    "qfrc_constraint",
    "cinert",
    "cvel",
    "cfrc_ext",
    "xpos",
    "xipos",
    "xquat",
    "site_xpos",
    "ten_length",
    "ten_velocity",
    "sensordata",
    "body_mass",
    "init_qpos",
    "init_qvel",
)
DOORS = """
#include "tasks/{0}.h"
void before(const {0}_params *o, const mf_physics *p, mf_task_state *state) {{ {0}_before(o, p, state); }}
int after(const {0}_params *o, const mf_physics *p, mf_task_state *state, const float *action, double *reward,
          double *info) {{ return {0}_after(o, p, state, action, reward, info); }}
void observe(const {0}_params *o, const mf_physics *p, double *obs) {{ {0}_observe(o, p, obs); }}
void reset(const {0}_params *o, const mf_physics *p, uint64_t seed, uint32_t env, uint32_t episode, double *qpos,
           double *qvel) {{ mf_rng rng; mf_rng_start(&rng, seed, env, episode, 0); {0}_reset(o, p, &rng, qpos, qvel); }}
int size(void) {{ return sizeof({0}_params); }}
"""


class Physics(ctypes.Structure):
    """mf_physics of robot.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ARRAYS),
        *((name, ctypes.c_double) for name in ("timestep", "dt")),
        *((name, ctypes.c_int32) for name in ("nq", "nv", "nu", "nbody", "evaluation")),
    ]


class Step(NamedTuple):
    reward: float
    terminated: bool
    info: dict[str, float]


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """The compiled doors of task `name`."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = Path(folder) / "doors.c", Path(folder) / f"{name}.so"
        source.write_text(DOORS.format(name))
        flags = ["-O3", "-std=c11", "-ffp-contract=off", "-Wall", "-Werror", "-shared", "-fPIC"]
        paths = [f"-I{ROOT / 'robot'}", f"-I{ROOT / 'native'}"]
        subprocess.run([*CC, *flags, *paths, str(source), "-o", str(built), "-lm"], check=True)
        return ctypes.CDLL(str(built))


class Rules:
    """The rules of `task` with `options`, looking at mjModel `model` and mjData `data`, which the caller steps."""

    def __init__(self, task: Task, options: dict[str, Any], model: Any, data: Any, frame_skip: int) -> None:
        self.task, self.lib = task, library(task.name)
        self.record = task.record(options, lambda kind, name: getattr(model, kind)(name).id)
        assert self.record.nbytes == self.lib.size()
        self.init = data.qpos.copy(), data.qvel.copy()
        at = {"body_mass": model.body_mass, "init_qpos": self.init[0], "init_qvel": self.init[1]}
        self.held = [at[name] if name in at else getattr(data, name) for name in ARRAYS]
        sizes = (getattr(model, name) for name in ("nq", "nv", "nu", "nbody"))
        timestep = model.opt.timestep
        self.physics = Physics(*(a.ctypes.data for a in self.held), timestep, timestep * frame_skip, *sizes)
        self.head = ctypes.c_void_p(self.record.ctypes.data), ctypes.byref(self.physics)
        self.state = (ctypes.c_double * 8)()
        self.size = task.obs_size(model, task.values(options))

    def before(self) -> None:
        self.lib.before(*self.head, self.state)

    def after(self, action: Array) -> Step:
        reward, info = ctypes.c_double(), np.full(len(self.task.info) + 1, np.pi)
        action = np.ascontiguousarray(action, np.float32)
        ended = self.lib.after(
            *self.head, self.state, _at(action), ctypes.byref(reward), ctypes.c_void_p(info.ctypes.data)
        )
        assert info[-1] == np.pi, "info is longer than Task.info"
        return Step(reward.value, bool(ended), dict(zip(self.task.info, info.tolist(), strict=False)))

    def observe(self) -> Array:
        obs = np.full(self.size + 1, np.pi)
        self.lib.observe(*self.head, _at(obs))
        assert obs[-1] == np.pi, "the observation is longer than Task.obs_size"
        return obs[:-1]

    def reset(self, seed: int, env: int, episode: int) -> tuple[Array, Array]:
        """A start: (qpos, qvel)."""
        qpos, qvel = np.full_like(self.init[0], np.nan), np.full_like(self.init[1], np.nan)
        self.lib.reset(*self.head, ctypes.c_uint64(seed), env, episode, _at(qpos), _at(qvel))
        return qpos, qvel


def _at(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
