"""Gives vectors of PufferEnvs, and of our own environments, the interface of pufferlib.vector.

    vec = pufferlib.vector.make(make, num_envs=16, num_workers=4, backend=pufferlib.vector.Multiprocessing)
    vec.async_reset(seed)
    obs, rewards, terminals, truncations, infos, agent_ids, masks = vec.recv()
    vec.send(actions)

`Serial` is our backend serial, `Multiprocessing` our workers: a worker that dies, hangs or raises is named at once. A
batch is one of our blocks. Arrays are views of the slab: they hold until the batch is sent.

An environment of ours is given by its name or factory, make("grid", num_envs=64): see ours.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from metta_fast.compat.pufferlib import info_box
from metta_fast.compat.pufferlib.batch import Creators, RawFactory
from metta_fast.compat.pufferlib.emulation import GymnasiumPufferEnv, PettingZooPufferEnv
from metta_fast.compat.pufferlib.errors import APIUsageError
from metta_fast.compat.pufferlib.puffer_env import PufferEnv, set_buffers
from metta_fast.compat.pufferlib.vector_base import BaseVecEnv, reset, step
from metta_fast.config.divisors import divisors
from metta_fast.config.extension import takes
from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.vector import Block
from metta_fast.envs.puffer.placed import is_emulated, is_puffer, lacks
from metta_fast.machine.hardware import allowed_cores
from metta_fast.vector import make_vector

__all__ = [
    "GymnasiumPufferEnv",
    "Multiprocessing",
    "PettingZooPufferEnv",
    "PufferEnv",
    "Serial",
    "make",
    "make_seeds",
    "reset",
    "set_buffers",
    "step",
]
OPTIONS = ("num_workers", "batch_size", "zero_copy", "sync_traj", "overwork", "teacher_actions")
"""Further arguments of `make`."""


class Serial(BaseVecEnv):
    """Steps environments one after another in this process. `envs` are they."""

    def __init__(
        self,
        env_creators: Sequence[Callable[..., Any]],
        env_args: Sequence[Sequence[Any]],
        env_kwargs: Sequence[Mapping[str, Any]],
        num_envs: int,
        buf: None = None,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        driver = _driver(env_creators, env_args, env_kwargs)
        factory = RawFactory(Creators(env_creators, env_args, env_kwargs, seed or 0), driver, None)
        driver.close()
        vec = make_vector(factory, num_envs)
        self._batch: Any = vec.batches[0]  # type: ignore[attr-defined]
        self.envs = [placed.env for placed in self._batch.envs]
        self.agents_per_env = [factory.agents] * num_envs
        rows = vec.rows
        self.observations, self.rewards, self.masks = rows.obs["observations"], rows.reward, rows.mask
        self.terminals, self.truncations = rows.terminal, rows.truncation
        self.actions, self.teacher_actions = rows.obs["actions"], rows.obs["teacher_actions"]
        self.agent_ids = np.arange(vec.num_agents)
        self._start(vec, self.envs[0], num_envs, kwargs)

    def _infos(self, block: Block) -> list[Any]:
        return self._batch.infos  # type: ignore[no-any-return]


class Multiprocessing(BaseVecEnv):
    """Steps environments in worker processes over shared memory.

    Args:
        num_workers: processes; None: one for each environment, at most the cores that are allowed.
        batch_size: environments that `recv` gives at once; the others step meanwhile. None: all.
        sync_traj: batches come in turn; False: the one that is ready first.
        zero_copy, overwork: have no effect: nothing is copied, and there may be more workers than cores.
    """

    def __init__(
        self,
        env_creators: Sequence[Callable[..., Any]],
        env_args: Sequence[Sequence[Any]],
        env_kwargs: Sequence[Mapping[str, Any]],
        num_envs: int,
        num_workers: int | None = None,
        batch_size: int | None = None,
        zero_copy: bool = True,
        sync_traj: bool = True,
        overwork: bool = False,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        batch_size = num_envs if batch_size is None else batch_size
        num_workers = _workers(num_envs) if num_workers is None else num_workers
        _check_sizes(num_envs, num_workers, batch_size)
        self.num_environments, self.num_workers = num_envs, num_workers
        self.envs_per_worker = num_envs // num_workers
        self.workers_per_batch = batch_size // self.envs_per_worker
        self.zero_copy = zero_copy
        driver = _driver(env_creators, env_args, env_kwargs)
        self._folder = tempfile.TemporaryDirectory(prefix="metta_fast_infos_")
        creators = Creators(env_creators, env_args, env_kwargs, seed or 0)
        try:
            factory = RawFactory(creators, driver, os.fspath(self._folder.name))
            vec = make_vector(
                factory,
                num_envs,
                backend="workers",
                num_blocks=num_envs // batch_size,
                num_workers=num_workers,
            )
        except BaseException:
            driver.close()
            self._folder.cleanup()
            raise
        self._boxes = vec.rows.obs["infos"].reshape(num_envs, -1)
        self._per_env = factory.agents
        self.agent_ids = np.arange(vec.num_agents).reshape(num_workers, -1)
        self._start(vec, driver, batch_size, {"sync_traj": sync_traj, **kwargs})

    def _infos(self, block: Block) -> list[Any]:
        boxes = self._boxes[block.start // self._per_env : block.stop // self._per_env]
        return [info for i in info_box.filled(boxes) for info in info_box.take(boxes[i])]

    def close(self) -> None:
        try:
            super().close()
        finally:
            self.driver_env.close()
            self._folder.cleanup()


def make(
    env_creator_or_creators: Any,
    env_args: Any = None,
    env_kwargs: Any = None,
    backend: Any = PufferEnv,
    num_envs: int = 1,
    seed: int = 0,
    **kwargs: Any,
) -> Any:
    """Makes a vector of environments.

    Args:
        env_creator_or_creators: a class or function that makes a PufferEnv, called with env_args, buf=, seed= and
            env_kwargs, or a list of num_envs of them; or one of our environments, by name or as an EnvFactory.
        env_args, env_kwargs: for all environments, or lists with one entry for each beside a list of creators.
        backend: Serial, Multiprocessing, PufferEnv (one environment alone, which is returned), or their names.
        seed: environment i is made with seed + i. (PufferLib never passes it on.)
        kwargs: num_workers, batch_size, zero_copy, sync_traj, overwork, as of Multiprocessing; "auto" for the first
            two; teacher_actions=True: `recv` returns a tuple of eight, as pufferlib-core's does.

    Raises:
        APIUsageError: arguments that do not go together, or a creator that makes something else.
    """
    if isinstance(num_envs, bool) or num_envs < 1 or num_envs != int(num_envs):
        raise APIUsageError(f"num_envs={num_envs!r}: expected a whole number of at least 1")
    num_envs, backend = int(num_envs), _backend(backend)
    if wrong := next((name for name in kwargs if name not in OPTIONS), None):
        raise APIUsageError(
            f"{wrong}: unknown argument; {did_you_mean(wrong, OPTIONS)}known: {', '.join(OPTIONS)}"
        )
    _resolve_auto(num_envs, kwargs)
    if isinstance(env_creator_or_creators, (str, EnvFactory)):
        from metta_fast.compat.pufferlib.ours import make_ours

        return make_ours(env_creator_or_creators, env_kwargs or {}, backend.__name__, num_envs, seed, kwargs)
    if backend is PufferEnv:
        return _alone(env_creator_or_creators, env_args or [], env_kwargs or {}, num_envs, seed, kwargs)
    creators, args, keys = _lists(env_creator_or_creators, env_args, env_kwargs, num_envs)
    if backend is Serial:
        kwargs.pop("num_workers", None)
        num_envs = kwargs.pop("batch_size", None) or num_envs  # what the others' recv gives
    return backend(creators, args, keys, num_envs, seed=seed, **kwargs)


def make_seeds(seed: Any, num_envs: int) -> list[int]:
    """Returns [seed, seed + 1, …], or the list that was given."""
    if isinstance(seed, int):
        return [seed + i for i in range(num_envs)]
    if isinstance(seed, (list, tuple)) and len(seed) == num_envs:
        return list(seed)
    raise APIUsageError(f"seed={seed!r}: expected a whole number, or a list of {num_envs}")


def _backend(given: Any) -> Any:
    known = {"Serial": Serial, "Multiprocessing": Multiprocessing, "PufferEnv": PufferEnv}
    name = given if isinstance(given, str) else getattr(given, "__name__", str(given))
    if name == "native":
        name = "PufferEnv"
    if name not in known:
        cure = (
            "Multiprocessing steps in processes of this machine; "
            if name == "Ray"
            else did_you_mean(name, known)
        )
        raise APIUsageError(f"backend={name}: {cure}expected one of {', '.join(known)}")
    return known[name]


def _resolve_auto(num_envs: int, kwargs: dict[str, Any]) -> None:
    if kwargs.get("num_workers") == "auto":
        kwargs["num_workers"] = _workers(num_envs)
    if kwargs.get("batch_size") == "auto":
        kwargs["batch_size"] = max(1, num_envs // 2)


def _workers(num_envs: int) -> int:
    """Returns the largest number of workers that divides the environments, at most the cores that are allowed."""
    return max(count for count in divisors(num_envs) if count <= max(1, allowed_cores()))


def _check_sizes(num_envs: int, num_workers: int, batch_size: int) -> None:
    if num_workers < 1 or num_envs % num_workers:
        raise APIUsageError(f"num_workers={num_workers}: expected a divisor of num_envs={num_envs}")
    each = num_envs // num_workers
    if batch_size < 1 or batch_size % each:
        raise APIUsageError(
            f"batch_size={batch_size}: expected a multiple of the {each} environments of a worker "
            f"(num_envs={num_envs} / num_workers={num_workers})"
        )
    if num_envs % batch_size:
        raise APIUsageError(f"batch_size={batch_size}: expected a divisor of num_envs={num_envs}")


def _lists(creators: Any, args: Any, kwargs: Any, num_envs: int) -> tuple[list[Any], list[Any], list[Any]]:
    """Returns one creator, args and kwargs for each environment."""
    if isinstance(creators, (list, tuple)):
        args = [[]] * num_envs if args is None else args
        kwargs = [{}] * num_envs if kwargs is None else kwargs
    else:
        creators, args, kwargs = [creators] * num_envs, [args or []] * num_envs, [kwargs or {}] * num_envs
    named = {"env_creators": creators, "env_args": args, "env_kwargs": kwargs}
    for name, values in named.items():
        if not isinstance(values, (list, tuple)) or len(values) != num_envs:
            raise APIUsageError(f"{name}: expected a list of num_envs={num_envs}")
    for creator, arg, keys in zip(creators, args, kwargs):
        if not callable(creator):
            raise APIUsageError(
                f"env_creators: {creator!r} is {type(creator).__name__}, expected a class or function"
            )
        if not isinstance(arg, (list, tuple)):
            raise APIUsageError(f"env_args: {arg!r} is {type(arg).__name__}, expected a list")
        if not isinstance(keys, dict):
            raise APIUsageError(f"env_kwargs: {keys!r} is {type(keys).__name__}, expected a dict")
    return list(creators), list(args), list(kwargs)


def _driver(creators: Any, args: Any, kwargs: Any) -> Any:
    """Makes the environment whose spaces are read."""
    env = creators[0](*args[0], **kwargs[0])
    if wrong := lacks(env):
        raise APIUsageError(f"what env_creator made {wrong}")
    return env


def _alone(creator: Any, args: Any, kwargs: Any, num_envs: int, seed: int, options: Mapping[str, Any]) -> Any:
    """Makes a native PufferEnv, which is its own vector."""
    if num_envs != 1:
        raise APIUsageError(
            f"num_envs={num_envs} with backend=PufferEnv, which is one environment of several agents; give "
            "backend=Serial or Multiprocessing"
        )
    if not callable(creator):
        raise APIUsageError(f"env_creator is {type(creator).__name__}: expected a class or function")
    seeded = {"seed": seed} if takes(creator, *args, seed=seed, **kwargs) else {}
    env = creator(*args, **kwargs, **seeded)
    if not is_puffer(env) or is_emulated(env):
        wrong = lacks(env) or f"is {type(env).__name__}, which needs a vector"
        raise APIUsageError(f"what env_creator made {wrong}; give backend=Serial or Multiprocessing")
    if options.get("teacher_actions"):
        env.teacher_in_recv = True
    return env


def __getattr__(name: str) -> Any:
    """Says what to use in place of names of PufferLib's that are not here."""
    cures = {
        "Ray": ": Multiprocessing steps in processes of this machine",
        "autotune": ': make(…, num_workers="auto") takes the cores that are allowed',
    }
    raise AttributeError(f"metta_fast.compat.pufferlib.vector has no {name!r}{cures.get(name, '')}")
