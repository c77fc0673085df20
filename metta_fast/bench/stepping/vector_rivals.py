"""Steps the environments of `--vector` with our backends and with other libraries, each in a process of its own.

    stepper = make("gymnasium", "SyncVectorEnv", "sleep", 8, cores=2)
    stepper.round(seconds=1.0)         # {"steps_per_s"}; nothing steps between rounds
    stepper.memory()                   # {"bytes": of each of its processes}

    ours        auto (what metta_fast.make_vec chooses), serial, threads, workers; all but serial in two blocks
    gymnasium   SyncVectorEnv; AsyncVectorEnv, a process for each environment. Reset in the next step.
    sb3         DummyVecEnv; SubprocVecEnv, a process for each environment, forked, which only starts faster. Reset
                within the step.
    pufferlib   Serial; Multiprocessing with a process for each core, half as many (its caller spins on a core too), or
                one for each environment; in two batches where the processes are even. Reset in the next step.
    envpool     CartPole-v1, all environments at once or half of them at a time. Reset in the next step.

Libraries are used as their manuals show, with their defaults. Actions are the same for all, drawn beforehand. A call
that only begins a new episode is no step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import psutil

from metta_fast.bench.harness.child_loop import serve
from metta_fast.bench.stepping.cpu_simulator import TAPE
from metta_fast.bench.stepping.steppers import EnvPool, GymnasiumVector, Stepper
from metta_fast.bench.stepping.vector_backends import Turner, held_round
from metta_fast.bench.stepping.vector_tasks import CHOICES, TASKS, Task
from metta_fast.compat.make_vec import make_vec
from metta_fast.contracts.env import Array, EnvFactory
from metta_fast.envs import make_factory
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.resolve.compose import compose
from metta_fast.vector.serial import SerialVector

HALF, EACH = ", half the cores", ", one each"
"""Endings of PufferLib's variants: so many processes."""


def actions(num_envs: int) -> list[Array]:
    """Draws TAPE arrays of actions [num_envs]."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, CHOICES, num_envs) for _ in range(TAPE)]


class Ours(Stepper):
    """Steps environments through one of our backends, or through the one that make_vec chooses."""

    def __init__(self, task: Task, backend: str, num_envs: int, cores: int) -> None:
        count = None if backend == "auto" else min(cores, num_envs)
        make = partial(
            make_vec,
            factory(task),
            num_envs,
            backend=backend,
            num_workers=count if backend == "workers" else None,
            num_threads=count if backend == "threads" else None,
        )
        vec = make()
        if not isinstance(vec, SerialVector):
            vec.close()
            vec = make(num_blocks=min(2, num_envs))
        tape = [row.astype(np.int32)[:, None] for row in actions(num_envs)]
        self._turner = Turner(vec, tape)
        vec.hold_all()
        self.task, self._vec = task.title, vec

    def ready(self) -> dict[str, Any]:
        """Also returns what steps them: "workers 2"."""
        vec = self._vec
        name = {"Serial": "serial", "Workers": "workers"}.get(
            type(vec).__name__.removesuffix("Vector"), "threads"
        )
        count = len(vec.worker_pids) if name == "workers" else vec.num_threads if name == "threads" else 0
        return {"envs": self.task, "chosen": f"{name} {count}" if count else name}

    def round(self, seconds: float) -> dict[str, Any]:
        return held_round(self._turner, seconds, calls=1)

    def close(self) -> None:
        self._turner.close()


class BatchStepper(Stepper):
    """Base class of libraries that step all environments and reset within the step: each action reaches one."""

    def __init__(self, task: Task, env: Any, num_envs: int) -> None:
        self.task, self._env, self._tape, self._count = task.title, env, actions(num_envs), 0

    def step(self) -> int:
        row = self._tape[self._count % TAPE]
        self._count += 1
        self._env.step(row)
        return len(row)

    def close(self) -> None:
        self._env.close()


class StableBaselines(BatchStepper):
    """Steps Stable-Baselines3's DummyVecEnv or SubprocVecEnv."""

    def __init__(self, task: Task, kind: str, num_envs: int) -> None:
        from stable_baselines3.common import vec_env

        more = {"start_method": "fork"} if kind == "SubprocVecEnv" else {}
        env = getattr(vec_env, kind)([task.make] * num_envs, **more)
        super().__init__(task, env, num_envs)
        env.seed(0)
        env.reset()


class PufferLib(Stepper):
    """Steps PufferLib, which resets in the step after an end; with two batches, they alternate."""

    def __init__(self, task: Task, backend: str, num_envs: int, cores: int) -> None:
        import pufferlib.emulation
        import pufferlib.vector

        self.task, self._tape = task.title, actions(num_envs)
        self._ended = np.zeros(num_envs, np.bool_)
        self._count = 0
        more: dict[str, Any] = {}
        kind, _, ending = backend.partition(",")
        if kind != "Serial":
            wanted = {HALF: max(cores // 2, 1), EACH: num_envs}.get("," + ending, cores)
            workers = max(n for n in range(1, min(wanted, num_envs) + 1) if num_envs % n == 0)
            batches = 1 if workers % 2 else 2
            more = {"num_workers": workers, "batch_size": num_envs // batches, "overwork": True}
        self._env = pufferlib.vector.make(
            pufferlib.emulation.GymnasiumPufferEnv,
            env_kwargs={"env_creator": task.make},
            backend=getattr(pufferlib.vector, kind),
            num_envs=num_envs,
            **more,
        )
        self._env.async_reset(0)

    def step(self) -> int:
        _, _, terminated, truncated, _, _, ids, _ = self._env.recv()
        acting = len(ids) - int(np.count_nonzero(self._ended[ids]))
        self._ended[ids] = terminated | truncated
        self._env.send(self._tape[self._count % TAPE][: len(ids)])
        self._count += 1
        return acting

    def close(self) -> None:
        self._env.close()


class Measured:
    """Adds `memory` to a stepper."""

    def __init__(self, stepper: Stepper) -> None:
        self.stepper = stepper
        self.ready, self.round, self.close = stepper.ready, stepper.round, stepper.close

    def memory(self) -> dict[str, Any]:
        """Returns {"bytes": memory that each child process has for itself, on average; 0 without any}."""
        found = [_own_bytes(one) for one in psutil.Process().children(recursive=True)]
        return {"bytes": sum(found) / len(found) if found else 0}


def _own_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0


def factory(task: Task) -> EnvFactory:
    """Returns our factory of the task."""
    if task.make is None:
        return make_factory(compose(["hardware=cpu", f"env={task.name}"]).config.env)
    return PythonEnvFactory(partial(_made, task.make), name=task.name)


def _made(make: Callable[[], Any], index: int) -> Any:
    return make()


def make(kind: str, variant: str, task: str, num_envs: int, cores: int) -> Measured:
    """Makes the stepper of one of vector_peers.py's SIDES."""
    return Measured(_make(kind, variant, TASKS[task], num_envs, cores))


def _make(kind: str, variant: str, task: Task, num_envs: int, cores: int) -> Stepper:
    if kind == "ours":
        return Ours(task, variant, num_envs, cores)
    if kind == "gymnasium":
        import gymnasium

        vector = getattr(gymnasium.vector, variant)([task.make] * num_envs)
        return GymnasiumVector(task.title, vector, actions(num_envs))
    if kind == "sb3":
        return StableBaselines(task, variant, num_envs)
    if kind == "pufferlib":
        return PufferLib(task, variant, num_envs, cores)
    if kind == "envpool":
        at_once = num_envs if variant == "all" else max(1, num_envs // 2)
        return EnvPool(
            "CartPole-v1",
            num_envs,
            min(cores, num_envs),
            at_once,
            lambda dtype: [row.astype(dtype) for row in actions(at_once)],
        )
    raise ValueError(f"kind {kind!r}: expected ours, gymnasium, sb3, pufferlib or envpool")


if __name__ == "__main__":
    serve(make)
