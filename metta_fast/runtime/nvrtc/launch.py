"""Loads compiled kernels and launches them on their card, on torch's current stream there.

    module = Module(code, torch.device("cuda", 0))
    step = module.kernel("mf_step").prepare((2048, 1), (32, 1), struct, ctypes.c_int32(3))
    step()                                # asynchronous; may be captured in a CUDA graph

Arguments are ctypes objects, read again at each launch. Device memory is passed as an address (`Tensor.data_ptr()`);
the caller of `prepare` must keep the tensors alive.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from cuda.bindings.driver import CUfunction


class LaunchError(RuntimeError):
    """The CUDA driver refused to load or launch a kernel."""


def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def _ok(result: tuple, what: str) -> Any:
    """Returns the value after the driver's result code. Raises LaunchError if the code is an error."""
    if result[0] != 0:
        _, text = _driver().cuGetErrorString(result[0])
        said = text.decode() if text else ""
        raise LaunchError(f"{what}: {result[0].name} ({said})")
    return result[1] if len(result) > 1 else None


def architecture(device: torch.device) -> int:
    """Returns the compute capability as one number: 90 for sm_90."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


class Module:
    """Holds compiled code, loaded on one device until the process ends."""

    def __init__(self, code: bytes, device: torch.device) -> None:
        """Loads the code, a cubin or PTX."""
        self.device = device
        torch.zeros(1, device=device)  # creates the device's context
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()
            self._handle = _ok(
                _driver().cuModuleLoadData(code + b"\0"),
                "loading compiled kernels (if the driver is older than NVRTC, update it; nvidia-smi shows its version)",
            )

        self.multiprocessors: int = torch.cuda.get_device_properties(device).multi_processor_count

    def kernel(self, name: str) -> Kernel:
        """Loads the kernel `name` onto the device, so that even its first launch may be captured in a graph."""
        with torch.cuda.device(self.device):
            function = _ok(_driver().cuModuleGetFunction(self._handle, name.encode()), f"kernel {name}")
            _ok(_driver().cuFuncLoad(function), f"kernel {name}")
        return Kernel(name, function, self.device)


class Kernel:
    """One kernel of a module."""

    def __init__(self, name: str, function: CUfunction, device: torch.device) -> None:
        self.name, self.function, self.device = name, function, device

    def prepare(self, grid: tuple[int, int], block: tuple[int, int], *args: Any, shared: int = 0) -> Launch:
        """Prepares a launch.

        Args:
            grid: numbers of blocks (x, y).
            block: numbers of threads (x, y).
            args: the kernel's arguments, ctypes objects.
            shared: bytes of dynamic shared memory, up to 48 KiB.
        """
        return Launch(self, grid, block, args, shared)


class Launch:
    """Binds a kernel to its arguments; calling it launches."""

    def __init__(
        self, kernel: Kernel, grid: tuple[int, int], block: tuple[int, int], args: tuple, shared: int
    ) -> None:
        self.kernel, self.grid, self.block, self.args = kernel, grid, block, args
        self._addresses = (ctypes.c_void_p * len(args))(*(ctypes.addressof(arg) for arg in args))
        self._given = (kernel.function, *grid, 1, *block, 1, shared)
        self._launch = _driver().cuLaunchKernel

    def __call__(self) -> None:
        with torch.cuda.device(self.kernel.device):  # makes its context the current one
            stream = torch.cuda.current_stream().cuda_stream
            result = self._launch(*self._given, stream, ctypes.addressof(self._addresses), 0)
        if result[0] != 0:
            _ok(result, f"launching {self.kernel.name}")
