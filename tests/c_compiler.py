"""The compilers that tests call: those of a build, so that they run where ziglang is the only one."""

from __future__ import annotations

import shutil

from metta_fast.machine.compiler import ZIG_FLAGS, find_compiler

_FOUND = find_compiler()
CC: list[str] = [] if _FOUND is None else [*_FOUND.command, *(ZIG_FLAGS if _FOUND.zig else ())]
"""Words of a C compiler; empty: there is none."""
CXX: list[str] = ["g++"] if shutil.which("g++") else []
"""Words of a C++ compiler; empty: there is none."""
if _FOUND is not None and _FOUND.zig and not CXX:
    CXX = [*_FOUND.command[:-1], "c++", *ZIG_FLAGS]
