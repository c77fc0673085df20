"""Implements robots on MuJoCo: tasks/ has the rules, physics.h steps them, env.py makes batches. Needs the extra
`robots`."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

from metta_fast.contracts.errors import UserError
from metta_fast.machine.installation import command, install_extra, is_checkout

MUJOCO = "4.0.0"
"""MuJoCo's version that the extension is built for: struct sizes and results differ between versions."""


def _cure() -> str:
    if is_checkout():
        return f"type {install_extra('robots')}, then {command('build robot')}"
    return f"type {install_extra('robots')}, then install metta_fast itself again from its source, which compiles it"


def _load_library() -> None:
    """Loads libmujoco, so that the extension finds it by its SONAME wherever the two packages are installed."""
    spec = importlib.util.find_spec("mujoco")
    if spec is None:
        raise UserError(f"robots need MuJoCo {MUJOCO}, which is not installed: {_cure()}")
    library = Path(next(iter(spec.submodule_search_locations or ["."]))) / f"libmujoco.so.{MUJOCO}"
    if not library.is_file():
        raise UserError(
            f"robots need MuJoCo {MUJOCO} for Linux; {library.parent} holds {_other(library.parent)}: {_cure()}"
        )
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise UserError(
            f"robots need MuJoCo {MUJOCO}, whose library cannot be loaded ({error}): {_cure()}"
        ) from error


def _other(folder: Path) -> str:
    """Describes the MuJoCo that is installed instead."""
    found = sorted(file.name.removeprefix("libmujoco.so.") for file in folder.glob("libmujoco.so.*"))
    return (
        " and ".join(found)
        or "none of its libraries (an upgrade in place leaves such: uninstall mujoco and mujoco-core first)"
    )


def _check() -> None:
    _load_library()
    if importlib.util.find_spec("metta_fast.envs.robot._robot") is None:
        raise UserError(f"metta_fast was built without MuJoCo, so robots are missing: {_cure()}")
    from metta_fast.envs.robot._robot import versions

    built, running = versions()
    if built != running:
        raise UserError(
            f"robots were built for MuJoCo {_named(built)}, the one that is loaded is {_named(running)}: {_cure()}"
        )


def _named(version: int) -> str:
    """4000000 → 4.0.0."""
    return f"{version // 1_000_000}.{version // 1_000 % 1_000}.{version % 1_000}"


_check()
