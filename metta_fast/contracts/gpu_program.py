"""Defines the interface of an environment that steps on a GPU, and of its compiled kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from metta_fast.contracts.env import Array, EnvSpec


@dataclass(frozen=True)
class Source:
    """Holds the source of one module of kernels."""

    name: str
    """Shown in messages."""
    text: str
    include: tuple[Path, ...] = ()
    """Folders of headers; the cache's key covers every `*.h` in them."""
    options: tuple[str, ...] = ()
    """Added to OPTIONS, such as -DNAME=value."""
    cure: str = ""
    """What a user can do if it does not compile; ends the message."""


class Program(Protocol):
    """Describes an environment's kernels over gpu_shell.h. The factory's `gpu_program()` returns it."""

    source: Source
    state_bytes: int
    """Bytes of one environment's state, a multiple of 64."""
    lanes_bytes: int
    """Bytes of shared memory that a warp needs to write observations; 0, or the value of MF_LANES_BYTES."""
    shortest: int
    """Steps of the shortest episode, without each environment's first one; 0 if episodes are not built ahead: the
    step that begins one makes it (MF_IN_PLACE of gpu_shell.h)."""
    table: Array | None
    """A constant array that the kernels read, such as ASCII maps."""

    def params(self, table: int) -> bytes:
        """Returns the kernels' first argument. table: its address on the GPU, 0 without one."""


class GpuFactory(Protocol):
    """Makes environments that have kernels (contracts/env.py: EnvFactory)."""

    spec: EnvSpec

    def gpu_program(self) -> Program:
        """Returns the environments' kernels."""
        ...


Launch = Callable[[], object]
"""Launches a kernel with bound arguments on torch's current stream."""


class KernelHandle(Protocol):
    """Holds one compiled kernel."""

    def prepare(
        self, grid: tuple[int, int], block: tuple[int, int], *args: object, shared: int = 0
    ) -> Launch:
        """Binds the kernel to ctypes arguments. shared: bytes of dynamic shared memory."""
        ...


class KernelModule(Protocol):
    """Holds compiled kernels, loaded on a device."""

    multiprocessors: int

    def kernel(self, name: str) -> KernelHandle:
        """Returns the kernel `name`."""
        ...
