"""Knows the packages that bring Gymnasium environments, and the command that installs each.

register("ALE/Breakout-v5", where)     # imports ale_py, which registers its games; UserError if it is missing
missing_package(error, where)          # "… needs Box2D: type …", or ""
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec

from metta_fast.config.extension import described
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.machine.installation import install_extra, install_packages

BRINGS = {
    "ALE/": ("ale_py", "atari"),
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
}
"""How ids begin → the module that registers them and our extra that installs it."""
EXTRAS = {"Box2D": "box2d", "mujoco": "robots", "ale_py": "atari", "minigrid": "minigrid"}
"""Modules → our extra."""
PACKAGES = {"imageio": "imageio", "pygame": "pygame", "jax": "gymnasium[jax]", "cv2": "opencv-python"}
"""Modules that Gymnasium's environments import → the package."""


def register(name: str, where: str) -> None:
    """Imports the package that registers this id, where it is one that we know.

    Raises:
        UserError: it is not installed, or cannot be imported.
    """
    for begin, (module, extra) in BRINGS.items():
        if not name.startswith(begin):
            continue
        if find_spec(module) is None:
            raise UserError(
                f"{where} needs the package {module}, which is not installed: type {install_extra(extra)}"
            )
        try:
            brought = importlib.import_module(module)
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise UserError(
                missing_package(error, where) or f"{where}: {module} cannot be imported: {described(error)}"
            ) from error
        if getattr(brought, "register_minigrid_envs", None) and not _has(begin):
            brought.register_minigrid_envs()


def missing_package(error: BaseException, where: str) -> str:
    """Returns the message for an environment whose package is missing, or "" if the error is another."""
    import gymnasium

    missing = error.__cause__ if isinstance(error, gymnasium.error.DependencyNotInstalled) else error
    if isinstance(missing, ModuleNotFoundError) and missing.name:
        module = missing.name.partition(".")[0]
        if module in EXTRAS:
            return f"{where} needs {module}, which is not installed: type {install_extra(EXTRAS[module])}"
        package = PACKAGES.get(module)
        if package:
            return f"{where} needs {module}, which is not installed: type {install_packages(package)}"
    if isinstance(error, gymnasium.error.DependencyNotInstalled):
        return f"{where}: {' '.join(str(error).split())}"
    return ""


def _has(begin: str) -> bool:
    import gymnasium

    return any(name.startswith(begin) for name in gymnasium.registry)
