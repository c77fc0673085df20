"""Makes environments from a creator of PufferLib: a class or function of a PufferEnv, called with buf and seed.

    metta-fast train env=pufferlib env.factory=my_module:make env.kwargs.size=8

        def make(size=4, buf=None, seed=0):
            return MyPufferEnv(size, buf=buf)

A native PufferEnv writes its observations into our slab (envs/puffer/native.py). One that PufferLib's emulation has
made (GymnasiumPufferEnv, PettingZooPufferEnv, of the package or of metta_fast.compat.pufferlib) is taken apart: what it
wraps is trained as any environment of that library, so the policy sees leaves in place of a struct's bytes, and time
limits bootstrap.

Place in the flow: metta_fast.envs.make_factory calls `pufferlib_factory`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from metta_fast.config.extension import described, keywords, takes
from metta_fast.config.keys import EnvConfig, shown
from metta_fast.contracts.env import EnvError, EnvFactory
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.contracts.progress import watched
from metta_fast.envs.adapters.packages import load_function
from metta_fast.envs.adapters.python_factory import python_factory
from metta_fast.envs.puffer.guard import unchanged
from metta_fast.envs.puffer.native import Creator, NativeFactory
from metta_fast.envs.puffer.placed import is_emulated, lacks
from metta_fast.envs.python_checks import close_env
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.machine.installation import install_packages

EMULATED = ("GymnasiumPufferEnv", "PettingZooPufferEnv")
"""Classes of PufferLib's emulation, which are taken apart."""
CURES = {
    "env.max_steps": "give the environment its limit with env.kwargs",
    "env.limit_is_terminal": "have the environment write terminals in place of truncations",
}
"""Keys that have no effect here, and what to type instead."""


@dataclass(frozen=True)
class Inner:
    """Makes what an emulated PufferEnv wraps."""

    creator: Creator

    def __call__(self, index: int) -> Any:
        return self.creator(seed=index).env


def pufferlib_factory(config: EnvConfig) -> EnvFactory:
    """Makes the factory of the creator that env.factory names.

    Raises:
        UserError: no creator, one that takes or makes something else, or a package that it lacks.
    """
    where = f"env.factory={config.factory}"
    if ":" not in config.factory:
        raise UserError(
            f"{where}: env=pufferlib needs what makes your PufferEnv, for example env=pufferlib "
            "env.factory=my_module:make, where make(buf=None, seed=0) returns it"
        )
    _check_keys(config)
    creator = Creator(_loaded(config, where), dict(config.kwargs))
    _check_call(creator, where)
    first = _first(creator, where)
    try:
        if _is_exactly_emulated(first):
            factory: Any = _inner(creator, config, where)
        else:
            if config.drop:
                raise UserError(
                    f"env.drop={shown(config.drop)} has no effect: a native PufferEnv has one observation; leave it out"
                )
            factory = NativeFactory(creator, first, name=config.name, leaf_kinds=config.leaf_kinds)
    finally:
        _close(first)
    factory.unread_keys, factory.key_cures = frozenset(CURES), CURES
    return factory  # type: ignore[no-any-return]


def _check_keys(config: EnvConfig) -> None:
    for name, value in (("params", config.params), ("id", config.id), ("wrappers", config.wrappers)):
        if value:
            cure = {"params": "arguments of the creator are env.kwargs.…"}.get(name, "leave it out")
            raise UserError(f"env.{name}={shown(value)} has no effect with env=pufferlib: {cure}")


def _loaded(config: EnvConfig, where: str) -> Any:
    """Imports the creator."""
    try:
        with unchanged():
            creator = load_function(config.factory)
    except UserError as error:
        raise _without_package(error, where) or error from error
    return creator


def _without_package(error: BaseException, where: str) -> UserError | None:
    """Returns the error for code that needs the package pufferlib, which is not installed."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ModuleNotFoundError) and (found.name or "").partition(".")[0] == "pufferlib":
            break
        found = found.__cause__ or found.__context__
    if found is None or find_spec("pufferlib") is not None:
        return None
    return UserError(
        f"{where} needs pufferlib, which is not installed: import metta_fast.compat.pufferlib as pufferlib in its "
        f"place (docs/pufferlib.md), or type {install_packages('--no-deps', 'pufferlib-core')}"
    )


def _check_call(creator: Creator, where: str) -> None:
    """Raises UserError unless the creator takes buf, seed and env.kwargs."""
    own = {"buf": None, "seed": 0}
    for name in own:
        if name in creator.kwargs:
            given = shown(creator.kwargs[name])
            raise UserError(
                f"env.kwargs.{name}={given} cannot be given: each environment gets its own; leave it out"
            )
    if not takes(creator.make, **own, **creator.kwargs):
        if takes(creator.make, **own):
            keywords(creator.make, {**own, **creator.kwargs}, "env.kwargs", 0)
        raise UserError(
            f"{where} does not take buf and seed, which PufferLib gives to what makes a PufferEnv: write "
            "make(buf=None, seed=0) with the names of env.kwargs; a function of metta_fast's own kind is env=module:f"
        )


def _first(creator: Creator, where: str) -> Any:
    """Makes the environment whose spaces are read."""
    try:
        with watched():
            env = creator()
    except BaseException as error:
        if is_interrupt(error):
            raise
        missing = _without_package(error, where)
        raise missing or UserError(f"{where} could not make an environment: {described(error)}") from error
    wrong = "" if _is_exactly_emulated(env) else lacks(env)
    if wrong:
        _close(env)
        raise UserError(f"{where}: what it made {wrong}")
    return env


def _is_exactly_emulated(env: Any) -> bool:
    """Returns whether this is PufferLib's own class, not one derived from it."""
    return type(env).__name__ in EMULATED and is_emulated(env) and hasattr(env, "env")


def _inner(creator: Creator, config: EnvConfig, where: str) -> PythonEnvFactory:
    try:
        return python_factory(Inner(creator), config)
    except EnvError as error:
        raise UserError(f"{where}: {error}") from error


def _close(env: Any) -> None:
    """Closes the environment whose spaces were read; one that cannot be closed can be trained."""
    with suppress(EnvError):
        close_env(env, 0)
