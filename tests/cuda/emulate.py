"""Runs GpuVector without a GPU: its kernels are compiled by g++ with emulator.h, its tensors are on the CPU.

vec = GpuVector(factory, 8, device="cpu", load=Emulator)
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import subprocess
import tempfile
from pathlib import Path

from tests.c_compiler import CXX

HERE = Path(__file__).parent
FLAGS = (
    "-std=c++17",
    "-O1",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wno-unused-function",
    "-Wno-unknown-pragmas",
    "-shared",
    "-fPIC",
)
_folder = tempfile.TemporaryDirectory(prefix="metta_fast_emulator_")
_built: dict[str, ctypes.CDLL] = {}


def has_compiler() -> bool:
    return bool(CXX)


def build(source) -> ctypes.CDLL:
    """What comes before the first #include fixes the kernels to one kind of map and observation: left out, so
    that one build does for all."""
    kernels = "#include" + source.text.split("#include", 1)[1]
    text = f'#include "emulator.h"\n{kernels}#define EMULATOR_TAIL\n#include "emulator.h"\n'
    key = hashlib.sha256(repr((text, source.options)).encode()).hexdigest()[:16]
    if key not in _built:
        path = Path(_folder.name) / f"{key}.cpp"
        path.write_text(text)
        library = path.with_suffix(".so")
        folders = [f"-I{folder}" for folder in (HERE, *source.include)]
        options = [option for option in source.options if option.startswith("-D")]
        command = [*CXX, *FLAGS, *options, *folders, str(path), "-o", str(library)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=500
        )  # ziglang compiles its C++ library first
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr, done.stderr
        _built[key] = ctypes.CDLL(str(library))
        _built[key].mf_emulate.restype = ctypes.c_char_p
    return _built[key]


class Emulator:
    """As `metta_fast.runtime.nvrtc.launch.Module`."""

    multiprocessors = 2

    def __init__(self, source, device) -> None:
        assert device.type == "cpu"
        self.library = build(source)
        self.order = itertools.count(1)

    def kernel(self, name: str) -> EmulatedKernel:
        return EmulatedKernel(self, name)


class EmulatedKernel:
    def __init__(self, module: Emulator, name: str) -> None:
        self.module, self.name = module, name

    def prepare(self, grid, block, *args, shared=0):
        assert grid[1] == 1
        assert shared <= 48 * 1024
        assert block[0] * block[1] <= 1024
        addresses = (ctypes.c_void_p * len(args))(*(ctypes.addressof(arg) for arg in args))

        def launch(keep=args) -> None:
            problem = self.module.library.mf_emulate(
                self.name.encode(), grid[0], *block, addresses, ctypes.c_uint64(next(self.module.order))
            )
            assert problem is None, f"{self.name}: {problem.decode()}"

        return launch
