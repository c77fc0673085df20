"""What a worker process is told."""

from __future__ import annotations

from dataclasses import dataclass

from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.slab import Slice


@dataclass(frozen=True)
class Job:
    """What the launcher and the workers must know."""

    factory: bytes
    """The EnvFactory, by cloudpickle; read in the workers only."""
    spec: EnvSpec
    num_workers: int
    num_threads: int
    slices: list[Slice]
    board_size: int
    """Bytes from the start of the shared memory to the slab."""
    memory_size: int
    spin_s: float
