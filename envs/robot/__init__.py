"""Robots on MuJoCo: tasks/ holds the rules, physics.h steps them, env.py makes batches. Needs the extra `robots`."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

from metta_fast.errors import UserError

MUJOCO = "4.0.0"
"""The version that the extension is built for: struct sizes and results differ between versions."""
CURE = (
    "install it (pip install 'metta-fast[robots]') and build again "
    "(./run_ultra_fast.sh --setup-only, or python setup.py build_ext --inplace)"
)


def _load_library() -> None:
    """Load libmujoco: the extension finds it by its SONAME, wherever the two packages are."""
    spec = importlib.util.find_spec("mujoco")
    if spec is None:
        raise UserError(f"robots need MuJoCo {MUJOCO}, which is not installed: {CURE}")
    library = Path(next(iter(spec.submodule_search_locations or ["."]))) / f"libmujoco.so.{MUJOCO}"
    if not library.is_file():
        raise UserError(f"robots need MuJoCo {MUJOCO} for Linux; {library.parent} holds another one: {CURE}")
    ctypes.CDLL(str(library))


def _check() -> None:
    _load_library()
    if importlib.util.find_spec("metta_fast.envs.robot._robot") is None:
        raise UserError(f"metta_fast was built without MuJoCo, so robots are missing: {CURE}")
    from metta_fast.envs.robot._robot import versions

    built, running = versions()
    if built != running:
        raise UserError(f"robots were built for MuJoCo {built}, the one that is loaded is {running}: {CURE}")


_check()
