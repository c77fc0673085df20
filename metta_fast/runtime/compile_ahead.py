"""Compiles Triton kernels in parallel instead of one after another.

    ahead = Ahead(torch.device("cuda"), threads=16)
    with ahead:
        work()        # launches no Triton kernel: a thread compiles each, or finds it in Triton's cache
    ahead.wait()      # later launches find the compiled kernels

`work` is the host's part of real work. The contents of its tensors do not matter; their sizes, dtypes and addresses
decide what is compiled. It may use threads of its own, as autograd does, but no other thread may launch Triton kernels
at the same time.

A compilation holds the GIL only at its beginning; LLVM, ptxas and the launcher's C compiler run without it. A kernel
that fails here is compiled again at its launch, and the error is raised there.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import torch

# Triton imports this cyclically at its first compilation; two threads would see partly initialised modules.
import triton.compiler.code_generator  # noqa: F401
from triton.runtime import JITFunction, driver

PARSES = 8
"""Attempts to parse a kernel's source. Up to Python 3.12.2 two threads in `ast.parse` may raise SystemError, "AST
constructor recursion depth mismatch" (CPython issue 106905)."""


class Ahead:
    """Compiles the Triton kernels that a block of code would launch; see the module's docstring."""

    def __init__(self, device: torch.device, threads: int) -> None:
        self._device = device
        self._pool = ThreadPoolExecutor(threads, "triton", self._begin)
        self.kernels: list[str] = []
        """Names of the kernels that would have been launched."""
        self.failed: list[str] = []
        """Names of the kernels whose compilation failed, with the error."""
        self._run = JITFunction.run

    def _begin(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_device(torch.cuda.current_device() if self._device.index is None else self._device)

    def __enter__(self) -> Self:
        _ = driver.active  # made by one thread, not by all of them

        def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **keys: Any) -> None:
            self.kernels.append(kernel.fn.__qualname__)
            self._pool.submit(self._compile, kernel, args, grid, keys)

        JITFunction.run = compile_only  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        JITFunction.run = self._run  # type: ignore[method-assign]
        self._pool.shutdown(wait=False)

    def wait(self) -> None:
        """Waits until all kernels are compiled and loaded."""
        self._pool.shutdown(wait=True)

    def _compile(self, kernel: Any, args: tuple[Any, ...], grid: Any, keys: dict[str, Any]) -> None:
        try:
            compiled = self._patiently(kernel, *args, grid=grid, warmup=True, **keys)
            _ = compiled.run  # builds its launcher and loads its code on the device
        except Exception as error:  # raised again at the kernel's launch
            self.failed.append(f"{kernel.fn.__qualname__}: {type(error).__name__}: {error}")
            logging.getLogger(__name__).debug("not compiled ahead: %s", self.failed[-1])

    def _patiently(self, *args: Any, **keys: Any) -> Any:
        for _ in range(PARSES):
            try:
                return self._run(*args, **keys)
            except SystemError:
                pass
        return self._run(*args, **keys)
