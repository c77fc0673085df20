"""Triton's kernels compiled side by side instead of one after the other.

    ahead = Ahead(torch.device("cuda"), threads=16)
    with ahead:
        work()        # launches no kernel of Triton: each is compiled by a thread, or taken from Triton's cache
    ahead.wait()      # now launches find them

`work` is the host's part of real work, on tensors whose contents do not count: sizes, types and addresses decide what
is compiled. It may use threads of its own, as autograd does; nobody else may launch Triton's kernels meanwhile.

A compilation holds Python's lock for its first tenth only: LLVM, ptxas and the C compiler of the launcher do without.
What fails here is compiled again where it is launched, and fails there with its message.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import torch

# What Triton imports when it compiles for the first time, in a circle: two threads would see each other's halves.
import triton.compiler.code_generator  # noqa: F401
from triton.runtime import JITFunction, driver

PARSES = 8
"""How often a kernel's source is parsed again. Two threads in `ast.parse` can disturb each other up to Python 3.12.2:
SystemError, "AST constructor recursion depth mismatch" (CPython's issue 106905)."""


class Ahead:
    """See the module's docstring."""

    def __init__(self, device: torch.device, threads: int) -> None:
        self._device = device
        self._pool = ThreadPoolExecutor(threads, "triton", self._begin)
        self.kernels: list[str] = []
        """What would have been launched."""
        self.failed: list[str] = []
        """Of these, whose compilation failed, and why."""
        self._run: Any = JITFunction.run

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
        """Until all are compiled and loaded."""
        self._pool.shutdown(wait=True)

    def _compile(self, kernel: Any, args: tuple[Any, ...], grid: Any, keys: dict[str, Any]) -> None:
        try:
            compiled = self._patiently(kernel, *args, grid=grid, warmup=True, **keys)
            _ = compiled.run  # its launcher is built, its code on the device
        except Exception as error:  # told in full where the kernel is launched
            self.failed.append(f"{kernel.fn.__qualname__}: {type(error).__name__}: {error}")
            logging.getLogger(__name__).debug("not compiled ahead: %s", self.failed[-1])

    def _patiently(self, *args: Any, **keys: Any) -> Any:
        for _ in range(PARSES):
            try:
                return self._run(*args, **keys)
            except SystemError:
                pass
        return self._run(*args, **keys)
