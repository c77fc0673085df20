"""Makes environments of several agents by PettingZoo's ids.

    metta-fast train env=pettingzoo env.id=pettingzoo.butterfly.pistonball_v6
    metta-fast train env=butterfly/pistonball_v6 env.kwargs.n_pistons=10
    metta-fast train env=pettingzoo env.id=my_package.my_game_v0 env.wrappers=[my_module:Wrap]

    env.id
      pettingzoo.family.name_vN      PettingZoo's own, by the module or by its registry
      family/name_vN                 what its registry has; package:family/name_vN imports the package first
      any other module               one with parallel_env(**kwargs) or env(**kwargs), as PettingZoo's have

The parallel environment is taken where there is one, else PettingZoo makes it of the one whose agents take turns
(agents/zoo.py). `env.kwargs` goes to the constructor; each of `env.wrappers` is called with the environment.

Place in the flow: metta_fast.envs.make_factory calls `pettingzoo_factory`. Ids, missing packages, arguments and
wrappers are checked there, before anything starts.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from metta_fast.config.extension import described, load_module, load_named
from metta_fast.config.gymnasium_id import ZOO, is_gymnasium_id, package_and_id
from metta_fast.config.keys import EnvConfig, nearest, shown
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.adapters.packages import check_package, missing_package
from metta_fast.envs.adapters.python_factory import check_no_params, factory_of_id, wrapped
from metta_fast.envs.agents.zoo import is_zoo
from metta_fast.envs.python_checks import check_env
from metta_fast.envs.python_env import PythonEnvFactory
from metta_fast.machine.installation import install_extra, install_packages

EXAMPLE = "pettingzoo.butterfly.pistonball_v6"
FUNCTIONS = ("parallel_env", "env", "raw_env")
"""What a module's environment is made by: the first that it has."""
MOVED = {"mpe": ("mpe2", "mpe2"), "magent": ("magent2", "magent2.environments")}
"""Families that PettingZoo no longer has → the package that has them, and its module."""
CURES = {
    "env.max_steps": "give env.kwargs.max_cycles=…, where the environment takes it",
    "env.limit_is_terminal": "wrap the environment (env.wrappers) to give terminations at the time limit",
}
"""Keys that have no effect here, and what to type instead."""


@dataclass(frozen=True)
class Maker:
    """Makes environment i of an id. cloudpickle takes it to workers, which need not know the id."""

    entry: str | Callable[..., Any]
    """module:function, or the function."""
    kwargs: Mapping[str, Any]
    wrappers: tuple[tuple[str, Callable[[Any], Any]], ...]
    """Name and function of each, the innermost first."""
    where: str

    def __call__(self, index: int) -> Any:
        env = _function(self.entry, self.where)(**self.kwargs)
        for name, wrap in self.wrappers:
            env = wrapped(env, f"env.wrappers: {name}", wrap)
        return env


@dataclass(frozen=True)
class _Checked:
    """Makes the first environment, and says what is wrong with it or with a wrapper."""

    made: Maker

    def __call__(self, index: int) -> Any:
        env = replace(self.made, wrappers=())(index)
        if not is_zoo(env):
            raise UserError(
                f"{self.made.where} gave {type(env).__name__}, neither a ParallelEnv nor an AECEnv of PettingZoo; an "
                "environment of one agent is given by Gymnasium's id or as env=my_module:make"
            )
        for name, wrap in self.made.wrappers:
            env = wrapped(env, f"env.wrappers: {name}", wrap)
            wrong = check_env(env) if is_zoo(env) else f"is {type(env).__name__}"
            if wrong:
                raise UserError(
                    f"env.wrappers: {name} is called with the environment of several agents and must return it "
                    f"wrapped; what it returned {wrong}"
                )
        return env


def pettingzoo_factory(config: EnvConfig) -> PythonEnvFactory:
    """Makes the factory of `env.id`.

    Raises:
        UserError: an unknown id, a missing package, an argument that the environment does not take, something that is
            no environment of PettingZoo, or agents of different spaces without env.pad.
    """
    where = f"env.id={config.id}"
    if not config.id:
        raise UserError(
            f"env=pettingzoo needs the environment's id, for example env=pettingzoo env.id={EXAMPLE}"
        )
    check_no_params(config)
    entry, kwargs = _found(config.id, where)
    wrappers = tuple((name, load_named(name, "env.wrappers")) for name in config.wrappers)
    made = Maker(entry, {**kwargs, **config.kwargs}, wrappers, where)

    def unknown(name: str) -> str:
        return f"env.kwargs.{name}={shown(made.kwargs[name])}: {where} takes no such argument"

    return factory_of_id(made, _Checked(made), config, CURES, unknown)


# ── ids ──


def _found(text: str, where: str) -> tuple[str | Callable[..., Any], dict[str, Any]]:
    """Returns what makes the environments of an id, and arguments that it is registered with. Raises UserError."""
    package, name = package_and_id(text)
    if package:
        check_package(package, where)
        load_module(package, "env.id", where)
    short = re.sub(r"^pettingzoo\.(\w+)\.(\w+)$", r"\1/\2", name)
    if ZOO.fullmatch(text) and find_spec("pettingzoo") is None:
        raise UserError(
            f"{where} needs the package pettingzoo, which is not installed: type {install_extra('pettingzoo')}"
        )
    for registered in _registries():
        if short in registered:
            return registered[short].entry_point, dict(registered[short].kwargs)
    family, _, rest = short.rpartition("/")
    if family in MOVED:
        package, place = MOVED[family]
        raise UserError(
            f"{where}: {family} is a package of its own: type {install_packages(package)}, then env.id={place}.{rest}"
        )
    module = f"pettingzoo.{name.replace('/', '.')}" if "/" in name else name
    if not _is_module(module):
        raise UserError(f"{where}: {_meant(short, module)}")
    brought = _imported(module, where)
    for function in FUNCTIONS:
        if callable(getattr(brought, function, None)):
            return f"{module}:{function}", {}
    raise UserError(
        f"{where}: the module {module} has neither parallel_env() nor env(), which make its environment; a function of "
        f"another name is given as env={module}:name"
    )


def _registries() -> list[Mapping[str, Any]]:
    """Returns PettingZoo's registries, of parallel environments first; none without it, or of an old version."""
    if find_spec("pettingzoo") is None:
        return []
    import pettingzoo

    return [getattr(pettingzoo, name, {}) for name in ("parallel_registry", "aec_registry")]


def _is_module(module: str) -> bool:
    if not all(part.isidentifier() for part in module.split(".")):
        return False
    try:
        return find_spec(module) is not None
    except BaseException as error:  # a package on the way cannot be imported
        if is_interrupt(error):
            raise
        return not isinstance(error, ModuleNotFoundError)


def _imported(module: str, where: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo: its registry is the newer way
            return importlib.import_module(module)
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise UserError(missing_package(error, where) or f"{where}: {described(error)}") from error


def _function(entry: str | Callable[..., Any], where: str) -> Callable[..., Any]:
    if callable(entry):
        return entry
    module, _, name = entry.partition(":")
    function: Callable[..., Any] = getattr(_imported(module, where), name)
    return function


def _meant(short: str, module: str) -> str:
    """Returns what is wrong with an id that is not there, and a hint."""
    if is_gymnasium_id(short) and not ZOO.fullmatch(short):
        return f"that is an id of Gymnasium, for one agent: give env={short}"
    known = sorted(_ids())
    missing = f"PettingZoo has no such environment, and there is no module {module}"
    stem = re.sub(r"_v\d+$", "", short.rpartition("/")[2])
    same = [id for id in known if re.sub(r"_v\d+$", "", id.rpartition("/")[2]) == stem]
    near = same[-1] if same else nearest(short, known)
    if near:
        return f"{missing}; did you mean '{near}'?"
    if not known:
        return f"there is no module {module}; PettingZoo's own need it installed: type {install_extra('pettingzoo')}"
    return f"{missing}; an id looks like {EXAMPLE}, and your own module has parallel_env() or env()"


def _ids() -> Iterator[str]:
    """Yields the ids family/name_vN of the installed PettingZoo."""
    for registered in _registries():
        yield from registered
    spec = find_spec("pettingzoo")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        for family in pkgutil.iter_modules([place]):
            for found in pkgutil.iter_modules([f"{place}/{family.name}"]) if family.ispkg else ():
                if re.search(r"_v\d+$", found.name):
                    yield f"{family.name}/{found.name}"
