"""Makes vectors of environments: serial, threads, workers, gpu behind one contract (contracts/vector.py).

    vec = make_vector(factory, 512, backend="workers", num_blocks=8, num_workers=16)
    upper = make_vector(factory, 256, first_env=256, total_envs=512)      # environments 256 … 511 of 512

    factory ──► serial.py   in the caller
            ├─► threads.py  native: C threads; else Python threads
            ├─► workers.py  processes over shared memory (launcher.py, worker.py)
            └─► backend gpu: rows on the learner's device (contracts/device_vector.py): the factory's own
                make_device_vector, or gpu.py: kernels over the same rules

Importing this module imports no backend.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from metta_fast.config.divisors import divisors
from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.device_vector import (
    DeviceFactory,
    DeviceVector,
    check_device_factory,
    check_device_vector,
)
from metta_fast.contracts.env import EnvFactory, check_factory
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.slab import EnvRange
from metta_fast.contracts.vector import Block, VectorEnv, VectorError, WorkerError

if TYPE_CHECKING:
    import torch

    from metta_fast.contracts.gpu_program import GpuFactory

__all__ = ["BACKENDS", "Block", "VectorEnv", "VectorError", "WorkerError", "make_vector"]

BACKENDS = ("serial", "threads", "workers")
"""Backends on the CPU. "gpu" needs a factory with `make_device_vector`, or `EnvSpec.gpu` and a card."""


def make_vector(
    factory: EnvFactory | DeviceFactory,
    num_envs: int,
    first_env: int = 0,
    total_envs: int | None = None,
    *,
    backend: str = "serial",
    num_blocks: int = 1,
    num_workers: int = 1,
    num_threads: int = 1,
    worker_timeout_s: float = 60.0,
    device: torch.device | None = None,
) -> VectorEnv:
    """Makes num_envs environments behind the vector contract.

    Args:
        first_env: global id of the first environment; the others follow. An environment depends on the seed and its
            global id alone, so vectors of [0, 4) and [4, 8) together do the same as one vector of [0, 8).
        total_envs: environments of the whole run, over which first episodes are staggered; None:
            first_env + num_envs.
        num_blocks: number of blocks: contiguous ranges of environments, each sent and received separately. Their
            sizes differ by at most one environment.
        num_workers: number of processes (workers only).
        num_threads: threads in the pool (threads) or in each worker (workers, native environments).
        worker_timeout_s: seconds without a reply after which a worker or thread is reported as hung.
        device: the learner's device, for backend gpu; the other backends ignore it.

    Returns:
        With backend="gpu" a DeviceVector (contracts/device_vector.py), which need not have blocks.

    Raises:
        UserError: a number out of range.
        WorkerError: a worker could not make its environments.
    """
    _check_backend(factory, backend)
    range_ = _env_range(num_envs, first_env, total_envs)
    _check("vector.async_factor", "blocks", num_blocks, num_envs)
    _check("vector.num_threads", "threads", num_threads, None)
    if not worker_timeout_s > 0:
        raise UserError(f"vector.worker_timeout_s={worker_timeout_s!r}: expected seconds above 0")
    if backend == "gpu":
        return cast("VectorEnv", _device_vector(factory, range_, num_blocks, device))
    assert isinstance(factory, EnvFactory)
    if backend == "serial":
        from metta_fast.vector.serial import SerialVector

        return SerialVector(factory, range_, num_blocks, worker_timeout_s)
    if backend == "threads":
        from metta_fast.vector.threads import NativeThreadsVector, PythonThreadsVector

        kind = NativeThreadsVector if factory.spec.native else PythonThreadsVector
        return kind(factory, range_, num_blocks, worker_timeout_s, num_threads)
    _check("vector.num_workers", "workers", num_workers, num_envs)
    from metta_fast.vector.workers import WorkersVector

    return WorkersVector(factory, range_, num_blocks, worker_timeout_s, num_workers, num_threads)


def _check_backend(factory: EnvFactory | DeviceFactory, backend: str) -> None:
    """Raises UserError for an unknown backend, or one that the factory does not support."""
    known = (*BACKENDS, "gpu")
    if backend not in known:
        raise UserError(
            f"vector.backend={backend!r} is not known; {did_you_mean(str(backend), known)}"
            f"There are {', '.join(known)}"
        )
    if isinstance(factory, EnvFactory):
        check_factory(factory)
    elif backend != "gpu":
        raise UserError(
            f"vector.backend={backend} is not available for {factory.spec.name}, whose environments step on the "
            "learner's device: it has only vector.backend=gpu"
        )


def _device_vector(
    factory: EnvFactory | DeviceFactory, envs: EnvRange, num_blocks: int, device: torch.device | None
) -> DeviceVector:
    """Makes environments on the learner's device: the factory's own, or an engine over its `gpu_program`."""
    if device is not None and isinstance(factory, DeviceFactory):
        check_device_factory(factory)
        from metta_fast.runtime.torch_setup import with_index

        device = with_index(device)
        vec = factory.make_device_vector(envs.count, device, envs.first, envs.total)
        check_device_vector(vec, factory, envs.count, envs.first, envs.total)
        return vec
    if not factory.spec.gpu or device is None or device.type != "cuda":
        raise UserError(
            f"vector.backend=gpu is not available for {factory.spec.name} on {device}: it needs an environment with a "
            "GPU engine and env.device=cuda, or a factory with make_device_vector"
        )
    from metta_fast.vector.gpu import GpuVector

    engine = cast("GpuFactory", factory)  # EnvSpec.gpu promises `gpu_program`
    return GpuVector(engine, envs.count, num_blocks, device, first_env=envs.first, total_envs=envs.total)


def _env_range(num_envs: int, first_env: int, total_envs: int | None) -> EnvRange:
    """Checks and completes the range of global ids that a vector makes."""
    for name, value, low in (("num_envs", num_envs, 1), ("first_env", first_env, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise UserError(f"{name}={value!r}: expected a whole number of at least {low}")
    total = first_env + num_envs if total_envs is None else total_envs
    if isinstance(total, bool) or not isinstance(total, int) or not first_env + num_envs <= total < 2**31:
        raise UserError(
            f"total_envs={total!r}: expected a whole number of at least first_env+num_envs={first_env + num_envs}"
        )
    return EnvRange(num_envs, first_env, total)


def _check(key: str, what: str, count: object, envs: int | None) -> None:
    """Checks that count is a whole number from 1 to the number of environments (None: no upper bound)."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UserError(f"{key}={count!r}: expected a whole number of at least 1")
    if envs is not None and count > envs:
        raise UserError(
            f"{key}={count}: more {what} than env.num_envs={envs} environments; the nearest counts "
            f"are {_listed(divisors(envs)[-3:])} (any number up to {envs} works)"
        )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(n) for n in sorted(numbers, reverse=True))
