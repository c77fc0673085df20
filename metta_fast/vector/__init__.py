"""Vectorization: serial, threads, workers behind one contract (api.py).

    vec = make_vector(factory, backend="workers", num_blocks=8, num_workers=16)

    factory ──► serial.py   in the caller
            ├─► threads.py  native: C threads; else Python threads
            ├─► workers.py  processes over shared memory (launcher.py, worker.py)
            └─► gpu.py      kernels over the same rules, rows on the device

Importing this imports no backend.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.vector import Block, VectorEnv, VectorError, WorkerError

if TYPE_CHECKING:
    import torch

__all__ = ["BACKENDS", "Block", "VectorEnv", "VectorError", "WorkerError", "make_vector"]

BACKENDS = ("serial", "threads", "workers")
"""Those on the CPU, which every environment has; "gpu" needs `EnvSpec.gpu` and a card."""


def make_vector(
    factory: EnvFactory,
    *,
    backend: str = "serial",
    num_blocks: int = 1,
    num_workers: int = 1,
    num_threads: int = 1,
    worker_timeout_s: float = 60.0,
    device: torch.device | None = None,
) -> VectorEnv:
    """All environments of `factory.spec` behind the vector contract.

    Args:
        num_blocks: contiguous ranges of environments that are sent and received apart (sizes differ by one
            environment at most).
        num_workers: processes; workers only.
        num_threads: threads of the pool (threads), or of each worker (workers, native environments).
        worker_timeout_s: a worker or thread for which recv waits so long is named as hung.
        device: of the backend gpu, a CUDA device; the others take no notice of it.

    Raises:
        UserError: a number that cannot be.
        WorkerError: a worker could not make its environments.
    """
    known = (*BACKENDS, "gpu")
    if backend not in known:
        raise UserError(
            f"vector.backend={backend!r} is not known; {did_you_mean(str(backend), known)}"
            f"There are {', '.join(known)}"
        )
    envs = factory.spec.num_envs
    _check("vector.async_factor", "blocks", num_blocks, envs)
    _check("vector.num_threads", "threads", num_threads, None)
    if not worker_timeout_s > 0:
        raise UserError(f"vector.worker_timeout_s={worker_timeout_s!r}: expected seconds above 0")
    if backend == "gpu":
        if not factory.spec.gpu or device is None or device.type != "cuda":
            raise UserError(
                f"vector.backend=gpu: {factory.spec.name} on {device} cannot be; it takes an environment with a "
                "GPU engine and env.device=cuda"
            )
        from metta_fast.vector.gpu import GpuVector

        engine: Any = factory  # EnvSpec.gpu promises `gpu_program`
        return GpuVector(engine, num_blocks, device)
    if backend == "serial":
        from metta_fast.vector.serial import SerialVector

        return SerialVector(factory, num_blocks, worker_timeout_s)
    if backend == "threads":
        from metta_fast.vector.threads import NativeThreadsVector, PythonThreadsVector

        kind = NativeThreadsVector if factory.spec.native else PythonThreadsVector
        return kind(factory, num_blocks, worker_timeout_s, num_threads)
    _check("vector.num_workers", "workers", num_workers, envs)
    from metta_fast.vector.workers import WorkersVector

    return WorkersVector(factory, num_blocks, worker_timeout_s, num_workers, num_threads)


def _check(key: str, what: str, count: object, envs: int | None) -> None:
    """A whole number from 1 to the number of environments (None: no upper bound)."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UserError(f"{key}={count!r}: expected a whole number of at least 1")
    if envs is not None and count > envs:
        raise UserError(
            f"{key}={count}: more {what} than env.num_envs={envs} environments; the nearest counts "
            f"are {_listed(_divisors(envs)[-3:])} (any number up to {envs} works)"
        )


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(n) for n in sorted(numbers, reverse=True))
