"""Steps the environments of `--env` with different libraries behind one interface, each in its own process.

    stepper = make("envpool", env="ant", num_envs=64, threads=2)
    stepper.round(seconds=1.0)         # {"steps_per_s"}; nothing steps between rounds

Peers are used as their manuals show, with their defaults. Actions are uniform over the action space.

    ours, ours_async            the backend `threads` in one block, and in two that alternate as in training
    envpool, envpool_async      all environments at once, and half of them at a time
    rollout                     mujoco.rollout: physics only, without observations, rewards and episodes
    sync, async                 Gymnasium's SyncVectorEnv and AsyncVectorEnv (a process for each environment)
    subproc                     Stable-Baselines3's SubprocVecEnv (the same)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from metta_fast.bench.harness.libraries import ENVPOOL, GYMNASIUM, MUJOCO, SB3, Library
from metta_fast.bench.stepping.cpu_simulator import TAPE, action_tape
from metta_fast.bench.stepping.steppers import EnvPool, GymnasiumVector, Ours, Stepper
from metta_fast.contracts.env import Array
from metta_fast.contracts.env_answers import as_gymnasium, gymnasium_id
from metta_fast.envs import make_factory
from metta_fast.resolve.compose import compose

ROLLOUT_STEPS = 2048
"""mujoco.rollout: approximate steps per call over all environments, so many that the call's overhead is small."""
ROLLOUT_LENGTH = 128
"""mujoco.rollout: steps before the physics starts again."""
ROLLOUT_NOISE = 0.01
"""mujoco.rollout: noise on the first positions, in metres and radians."""


@dataclass(frozen=True)
class Peer:
    """One row of the table."""

    kind: str
    name: str
    library: Library | None = None
    """Library that must be installed; None for metta_fast."""
    processes: bool = False
    """Whether it has one process per environment."""
    against: str = "ours"
    """Kind of metta_fast's row that it is compared with."""


PEERS = (
    Peer("ours", "metta_fast"),
    Peer("ours_async", "metta_fast, 2 blocks"),
    Peer("envpool", "EnvPool", ENVPOOL),
    Peer("envpool_async", "EnvPool, half at a time", ENVPOOL, against="ours_async"),
    Peer("rollout", "mujoco.rollout (physics alone)", MUJOCO),
    Peer("sync", "Gymnasium SyncVectorEnv", GYMNASIUM),
    Peer("async", "Gymnasium AsyncVectorEnv", GYMNASIUM, True),
    Peer("subproc", "SB3 SubprocVecEnv", SB3, True),
)


def _factory(env: str) -> Any:
    """Makes the factory of a recipe; for robots, the task as in Gymnasium, which the peers step."""
    config = compose(["hardware=cpu", f"env={env}"]).config.env
    config.action_repeat = 1  # peers apply each action once
    return as_gymnasium(make_factory(config))


def _robot(env: str) -> Any:
    """Makes the factory of a recipe's robot, for its names and actions."""
    return _factory(env)


def _tape(env: str, num_envs: int, dtype: str) -> list[Array]:
    """Draws TAPE arrays [num_envs, actions] of the peer's dtype."""
    return [actions.astype(dtype) for actions in action_tape(_robot(env).spec, num_envs)]


def _envpool(env: str, num_envs: int, threads: int, at_once: int) -> EnvPool:
    """Makes EnvPool's environments of a recipe's robot; the version before -v5 where that is all it has."""
    import envpool

    wanted, known = gymnasium_id(_robot(env)), set(envpool.list_all_envs())
    task = wanted if wanted in known else wanted.replace("-v5", "-v4")
    return EnvPool(task, num_envs, threads, at_once, lambda dtype: _tape(env, at_once, dtype))


class Rollout(Stepper):
    """Steps mujoco.rollout in open loop, several steps per call, from the last state up to ROLLOUT_LENGTH."""

    def __init__(self, env: str, num_envs: int, threads: int) -> None:
        import mujoco
        from mujoco.rollout import Rollout as Pool

        factory = _robot(env)
        self.task = factory.task.xml
        model = mujoco.MjModel.from_xml_path(factory.model.path)
        data = mujoco.MjData(model)
        size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        rng = np.random.default_rng(0)
        self._start = np.empty((num_envs, size))
        for row in self._start:
            mujoco.mj_resetData(model, data)
            data.qpos += rng.uniform(-ROLLOUT_NOISE, ROLLOUT_NOISE, model.nq)
            mujoco.mj_getState(model, data, row, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        steps = min(ROLLOUT_LENGTH, max(1, ROLLOUT_STEPS // num_envs))
        each = np.stack(_tape(env, num_envs, "float64"), 1)  # [envs, TAPE, actions]
        each = np.tile(each, (1, -(-steps // TAPE), 1))[:, :steps]
        self._control = np.repeat(each, factory.frame_skip, 1)
        self._pool, self._model = Pool(nthread=threads), model
        self._data = [mujoco.MjData(model) for _ in range(threads)]
        substeps = steps * factory.frame_skip
        self._state = np.empty((num_envs, substeps, size))
        self._sensors = np.empty((num_envs, substeps, model.nsensordata))
        self._steps, self._done, self._from = steps, 0, self._start

    def step(self) -> int:
        self._pool.rollout(
            self._model,
            self._data,
            self._from,
            self._control,
            state=self._state,
            sensordata=self._sensors,
        )
        self._done += self._steps
        self._from = self._state[:, -1].copy()
        if self._done >= ROLLOUT_LENGTH:
            self._done, self._from = 0, self._start
        return self._steps * len(self._start)

    def close(self) -> None:
        self._pool.close()


class Subproc(Stepper):
    """Steps Stable-Baselines3's SubprocVecEnv, which resets within the step; forked, which only starts faster."""

    def __init__(self, env: str, num_envs: int) -> None:
        from stable_baselines3.common.vec_env import SubprocVecEnv

        self.task = gymnasium_id(_robot(env))
        self._tape = _tape(env, num_envs, "float32")
        self._env = SubprocVecEnv([_maker(self.task)] * num_envs, start_method="fork")
        self._count = 0
        self._env.seed(0)
        self._env.reset()

    def step(self) -> int:
        actions = self._tape[self._count % TAPE]
        self._env.step(actions)
        self._count += 1
        return len(actions)

    def close(self) -> None:
        self._env.close()


def _maker(task: str) -> Callable[[], Any]:
    """Returns a function that makes a Gymnasium environment."""

    def make() -> Any:
        import gymnasium

        return gymnasium.make(task)

    return make


def _gymnasium(env: str, num_envs: int, kind: str) -> GymnasiumVector:
    import gymnasium

    task = gymnasium_id(_robot(env))
    vector = gymnasium.vector.SyncVectorEnv if kind == "sync" else gymnasium.vector.AsyncVectorEnv
    return GymnasiumVector(task, vector([_maker(task)] * num_envs), _tape(env, num_envs, "float32"))


def make(kind: str, env: str, num_envs: int, threads: int) -> Ours | Stepper:
    """Makes the stepper of a Peer's kind: num_envs environments of the recipe `env` on `threads` threads."""
    if kind in ("ours", "ours_async"):
        blocks = 1 if kind == "ours" else min(2, num_envs)
        return Ours(_factory(env), num_envs, "threads", threads, blocks)
    if kind in ("envpool", "envpool_async"):
        return _envpool(env, num_envs, threads, num_envs if kind == "envpool" else max(1, num_envs // 2))
    if kind == "rollout":
        return Rollout(env, num_envs, threads)
    if kind in ("sync", "async"):
        return _gymnasium(env, num_envs, kind)
    if kind == "subproc":
        return Subproc(env, num_envs)
    raise ValueError(f"kind {kind!r}: expected one of {', '.join(peer.kind for peer in PEERS)}")
