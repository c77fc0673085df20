"""Starts a GPU run's slow preparations while torch is being imported.

    begin(resolved)       ─► thread: CUDA context · the environment's kernels by NVRTC, into the cache on disk
                          └► thread: Triton, and its key to its own cache on disk: a hash over all of it
    … import torch …
    build_parts(…)        finds the context and Triton, and the kernels or the lock of who compiles them (compile.py)

Nothing depends on it: a failure here occurs again where the result is needed, and is reported there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from metta_fast.machine.compiler import provide_compiler
from metta_fast.runtime import kernel_caches
from metta_fast.runtime.nvrtc.compile import cache_folder

if TYPE_CHECKING:
    from metta_fast.resolve.resolve import Resolved


def begin(resolved: Resolved) -> list[threading.Thread]:
    """Starts the threads, if environments step on the GPU, and returns them."""
    kernel_caches.settle()
    if resolved.config.env.device != "cuda":
        return []
    provide_compiler(cache_folder().parent)

    def environment() -> None:
        arch = _context(0)
        from metta_fast.runtime.nvrtc.compile import compile_source

        factory: Any = resolved.factory
        if not hasattr(factory, "gpu_program"):  # no kernels over gpu_shell.h
            return
        compile_source(factory.gpu_program().source, arch)

    def triton() -> None:
        import triton.compiler.code_generator  # noqa: F401  with all that compiling needs
        from triton.backends.nvidia.driver import CudaUtils
        from triton.runtime.cache import triton_key

        triton_key()
        CudaUtils()  # a C compiler's work, kept in Triton's cache on disk

    # No daemons: at the end of a process NVRTC must not be in the middle of its work.
    threads = [
        threading.Thread(target=_try, args=(work,), name=work.__name__) for work in (environment, triton)
    ]
    for thread in threads:
        thread.start()
    return threads


def _try(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # reported where it is needed
        logging.getLogger(__name__).debug("no head start with the %s: %s", work.__name__, error)


def _context(number: int) -> int:
    """Makes the device's primary context, which torch uses too. Returns its architecture, 90 for sm_90."""
    from cuda.bindings import driver

    def value(result: tuple[Any, ...]) -> Any:
        if result[0] != 0:
            raise RuntimeError(result[0].name)
        return result[1] if len(result) > 1 else None

    value(driver.cuInit(0))
    device = value(driver.cuDeviceGet(number))
    value(driver.cuDevicePrimaryCtxRetain(device))
    kind = driver.CUdevice_attribute
    major = value(driver.cuDeviceGetAttribute(kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
    minor = value(driver.cuDeviceGetAttribute(kind.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
    return int(10 * major + minor)
