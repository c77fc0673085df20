"""Defines the job that a worker process receives."""

from __future__ import annotations

from dataclasses import dataclass

from metta_fast.contracts.env import EnvSpec
from metta_fast.contracts.slab import EnvRange, Slice


@dataclass(frozen=True)
class Job:
    """Describes the environments that the launcher's workers make."""

    factory: bytes
    """The EnvFactory, by cloudpickle; unpickled in the workers only."""
    preload: str
    """Module of ours to import before the workers are forked, so that they share it; "": none."""
    spec: EnvSpec
    envs: EnvRange
    num_workers: int
    num_threads: int
    slices: list[Slice]
    board_size: int
    """Bytes from the start of the shared memory to the slab."""
    memory_size: int
    spin_s: float
