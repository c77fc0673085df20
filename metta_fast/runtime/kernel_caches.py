"""Says where compiled kernels are kept on disk, and keeps them all in one folder that outlives a restart.

    ~/.cache/metta_fast/          METTA_FAST_CACHE, or metta_fast in XDG_CACHE_HOME
        cuda/                     environments' kernels, by NVRTC (runtime/nvrtc/compile.py)
        warp/1.19.0/              MuJoCo Warp's                     WARP_CACHE_PATH
        inductor/                 torch.compile's                   TORCHINDUCTOR_CACHE_DIR
        triton/                   Triton's                          TRITON_CACHE_DIR
        jax/                      JAX's for a GPU, where environments are in JAX    JAX_COMPILATION_CACHE_DIR

torch.compile's own default is in /tmp, which most systems empty when they start. A variable that is set already stays.
Copied to another machine with the same GPU and packages, the folder saves it the compiling.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

VARIABLES = {
    "warp": "WARP_CACHE_PATH",
    "inductor": "TORCHINDUCTOR_CACHE_DIR",
    "triton": "TRITON_CACHE_DIR",
}
"""Folder → the variable with which its owner is told of it."""
JAX = {"jax": "JAX_COMPILATION_CACHE_DIR"}
"""Likewise, but set only where environments in JAX are on a GPU: JAX complains of what another kind of CPU compiled."""
OURS = "cuda"


class Size(NamedTuple):
    """What is in a folder."""

    files: int
    bytes: int


def base() -> Path:
    """Returns the folder of all caches, without creating it."""
    own, shared = os.environ.get("METTA_FAST_CACHE"), os.environ.get("XDG_CACHE_HOME")
    folder = Path(own) if own else Path(shared or Path.home() / ".cache") / "metta_fast"
    return folder.expanduser()


def settle() -> None:
    """Sets the variables that are not set. Call it before the first kernel is compiled.

    Where the folder cannot be written, the owners' defaults stay.
    """
    for name, variable in VARIABLES.items():
        if not folder_of(name, variable):
            return


def folder_of(name: str, variable: str) -> str:
    """Returns the folder that the variable names; sets one that is not set. "" if the folder cannot be written."""
    if found := os.environ.get(variable):
        return found
    folder = base() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: no home
        return ""
    if not os.access(folder, os.W_OK):
        return ""
    os.environ[variable] = str(folder)
    return str(folder)


def folders() -> dict[str, Path]:
    """Returns name → folder of each cache whose place is known."""
    known = {
        name: Path(os.environ[variable]) for name, variable in VARIABLES.items() if os.environ.get(variable)
    }
    return {OURS: base() / OURS, **known}


def size(folder: Path) -> Size:
    """Returns how much is in the folder; nothing if there is none."""
    files = total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_size
            except OSError:  # a temporary file that is gone
                continue
            files += 1
    return Size(files, total)
