"""What an environment gives to step on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from metta_fast.contracts.env import Array, EnvSpec


@dataclass(frozen=True)
class Source:
    """One module of kernels."""

    name: str
    """For messages."""
    text: str
    include: tuple[Path, ...] = ()
    """Folders of headers; every `*.h` in them counts for the cache."""
    options: tuple[str, ...] = ()
    """Added to OPTIONS, such as -DNAME=value."""


class Program(Protocol):
    """What an environment's factory gives (`gpu_program()`): its kernels' source over gpu_shell.h."""

    source: Source
    state_bytes: int
    """Of one env, a multiple of 64."""
    lanes_bytes: int
    """Of shared memory that a warp needs to write observations; 0, or what MF_LANES_BYTES was defined as."""
    shortest: int
    """Steps of the shortest episode, but for the first of each env."""
    table: Array | None
    """A constant array that the kernels read, such as ASCII maps."""

    def params(self, table: int) -> bytes:
        """The kernels' first argument; table: its address on the GPU, 0 without one."""


class GpuFactory(Protocol):
    spec: EnvSpec

    def gpu_program(self) -> Program: ...
