"""Reads an environment in C from a folder (env.path): NAME/NAME.py defines `env`, a CEnv; NAME/NAME.h has the rules.

factory = folder_factory(Path("snake"), max_steps=500, size=8)
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from metta_fast.config.extension import described
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.c_env.definition import CEnv, CFactory
from metta_fast.storage.user_files import user_path


def folder_factory(path: Path | str, **keys: Any) -> CFactory:
    """Makes the factory of the environment in a folder. Runs its Python file.

    Args:
        keys: agents_per_env, max_steps, limit_is_terminal, and the environment's own parameters.

    Raises:
        UserError: the folder does not hold an environment, or a parameter or its rules have a fault.
    """
    folder = Path(path).resolve()
    env = load_folder(folder)
    return env.make(folder / f"{env.name}.h", **keys)


def build_folder(name: str) -> Path | None:
    """Compiles the rules of an environment in C, unless the cache has them, and checks that they fit its description.

    Args:
        name: its folder, or a game that comes with metta_fast.

    Returns:
        The library; None: `name` is neither.

    Raises:
        UserError: the folder holds no environment, there is no compiler, or a file has a fault.
    """
    game = Path(__file__).resolve().parents[1] / "games" / name
    place = game if name.isidentifier() and game.is_dir() else user_path(name)
    if not place.is_dir() and "/" not in name and not name.startswith("."):
        return None
    env, folder = load_folder(place.resolve()), place.resolve()
    return env.make(folder / f"{env.name}.h", agents_per_env=env.agents or 1).path


def load_folder(folder: Path) -> CEnv:
    """Imports the folder's Python file and returns its CEnv."""
    where = f"env.path={folder}"
    name, file = folder.name, folder / f"{folder.name}.py"
    if folder.is_file():
        raise UserError(f"{where} is a file: give the folder that contains it, env.path={folder.parent}")
    if not folder.is_dir():
        raise UserError(
            f"{where}: there is no such folder; metta-fast new-env {name or 'NAME'} writes one to begin with"
        )
    if not file.is_file() or not name.isidentifier():
        raise UserError(
            f"{where}: expected {name}.py and {name}.h in it, named as the folder; metta-fast new-env NAME writes "
            "such a folder"
        )
    spec = importlib.util.spec_from_file_location(f"metta_fast_c_env_{name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except UserError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise UserError(f"{where}: {file.name} cannot be imported: {described(error)}") from error
    found = getattr(module, "env", None)
    if not isinstance(found, CEnv):
        raise UserError(f"{where}: {file.name} defines no env; expected env = CEnv({name!r}, …)")
    if found.name != name:
        raise UserError(f"{where}: {file.name} defines CEnv({found.name!r}, …), expected the folder's name")
    return found
