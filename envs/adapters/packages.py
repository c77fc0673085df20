"""Knows the packages that bring environments of Gymnasium and PettingZoo, and the command that installs each.

register("ALE/Breakout-v5", where)     # imports ale_py, which registers its games; UserError if it is missing
missing_package(error, where)          # "… needs Box2D: type …", or ""
check_package("minigrd", where)        # UserError: did you mean 'minigrid'?
meant_id("gymnasium:CartPole")         # "did you mean the id env=gymnasium:CartPole-v1?"
"""

from __future__ import annotations

import importlib
import re
import sys
from importlib.util import find_spec
from typing import Any

from metta_fast.config.extension import described, load_named, place_of
from metta_fast.config.keys import nearest
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.machine.installation import install_extra, install_packages

BRINGS = {
    "ALE/": ("ale_py", "atari"),
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
}
"""How ids begin → the module that registers them and our extra that installs it."""
EXTRAS = {
    "Box2D": "box2d",
    "mujoco": "robots",
    "ale_py": "atari",
    "minigrid": "minigrid",
    "pettingzoo": "pettingzoo",
    "pymunk": "pettingzoo",
}
"""Modules → our extra."""
PACKAGES = {
    "imageio": "imageio",
    "pygame": "pygame",
    "jax": "gymnasium[jax]",
    "cv2": "opencv-python",
    "chess": "chess",
    "rlcard": "rlcard",
    "multi_agent_ale_py": "multi-agent-ale-py",
}
"""Modules that environments of Gymnasium and PettingZoo import → the package."""
BATCHED = {
    "craftax": "craftax",
    "envpool": "envpool",
    "flax": "flax",
    "gymnax": "gymnax",
    "jax": "jax",
    "mani_skill": "mani_skill",
    "rsl_rl": "rsl-rl-lib",
    "tensordict": "tensordict",
}
"""Modules that bring batched environments (envs/batched), and that those import → the package."""


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


def check_package(package: str, where: str) -> None:
    """Raises UserError for a package of `package:id` that is not there: the command that installs it, or the name that
    is meant. Packages that we know are not all that there are: any other is imported by its caller."""
    top = package.partition(".")[0]
    if not top.isidentifier() or top in sys.modules or place_of(top):
        return
    if top in EXTRAS:
        raise UserError(
            f"{where} needs the package {top}, which is not installed: type {install_extra(EXTRAS[top])}"
        )
    if near := nearest(top, [*EXTRAS, "gymnasium"]):
        raise UserError(f"{where}: there is no package {top!r}; did you mean '{near}'?")


def registered_by(package: str) -> list[str]:
    """Returns the ids in Gymnasium's registry whose environments are in this package."""
    import gymnasium

    top = package.partition(".")[0]

    def module(entry: Any) -> str:
        return entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")

    return sorted(
        id
        for id, spec in gymnasium.registry.items()
        if module(spec.entry_point).partition(".")[0] == top or id.startswith(f"{top}/")
    )


def load_function(named: str) -> Any:
    """Imports what env.factory=package:name names.

    Raises:
        UserError: as load_named; with a hint where the package registers ids.
    """
    package = named.partition(":")[0]
    check_package(package, f"env.factory={named}")
    try:
        return load_named(named, "env.factory")
    except UserError as error:
        if lacks := lacking(error.__cause__, f"env.factory={named}"):
            raise UserError(lacks) from error
        hint = meant_id(named) if package.partition(".")[0] in sys.modules else ""
        if not hint:
            raise
        raise UserError(f"{error}; {hint}") from error


def meant_id(named: str) -> str:
    """Returns a hint for `package:Name` that is no function of a package that registers ids; "" for other packages."""
    package, _, name = named.partition(":")
    ids = sorted(registered_by(package), key=lambda id: (_version(id), "/" not in id))
    if not ids:
        return ""
    stems = {re.sub(r"-v\d+$", "", id.rpartition("/")[2]): id for id in ids}
    near = stems.get(name) or nearest(name, ids)
    if near:
        return f"did you mean the id env={package}:{near}?"
    return f"the ids that {package} registers end in a version, such as env={package}:{ids[-1]}"


def _version(id: str) -> int:
    found = re.search(r"-v(\d+)$", id)
    return int(found[1]) if found else -1


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


def lacking(error: BaseException | None, where: str) -> str:
    """Returns the message for code of the user's that lacks a package of BATCHED, with the command that installs it;
    "" if the error is another."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    module = error.name.partition(".")[0]
    if module not in BATCHED:
        return ""
    return f"{where} needs {module}, which is not installed: type {install_packages(BATCHED[module])}"


def _has(begin: str) -> bool:
    import gymnasium

    return any(name.startswith(begin) for name in gymnasium.registry)
