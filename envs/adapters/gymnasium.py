"""Makes environments of Gymnasium's registry by their id.

    metta-fast train env=CartPole-v1
    metta-fast train env=gymnasium env.id=LunarLander-v3 env.kwargs.gravity=-8 env.wrappers=[my_module:Wrap]

`env.id` is Gymnasium's id. `package:id` imports the package first, which registers it. `env.kwargs` goes to the
environment's constructor; Gymnasium's own max_episode_steps and disable_env_checker are allowed too. Each of
`env.wrappers` is called with the environment and returns one; the first is the innermost.

Place in the flow: metta_fast.envs.make_factory calls `gymnasium_factory`. Ids, names of arguments, missing packages and
wrappers are checked there, before anything starts.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from metta_fast.config.extension import described, keywords, load_module, load_named
from metta_fast.config.gymnasium_id import package_and_id
from metta_fast.config.keys import EnvConfig, nearest
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.adapters.packages import check_package, missing_package, register, registered_by
from metta_fast.envs.adapters.python_factory import check_no_params, factory_of_id, wrapped
from metta_fast.envs.python_checks import check_env
from metta_fast.envs.python_env import PythonEnvFactory

OF_MAKE = ("max_episode_steps", "disable_env_checker")
"""Arguments that gymnasium.make takes itself."""
CURES = {
    "env.max_steps": "give env.kwargs.max_episode_steps=…",
    "env.limit_is_terminal": "wrap the environment (env.wrappers) to give terminated at the time limit",
}
"""Keys that have no effect here, and what to type instead."""
SHOWN = 5
"""Ids that a message lists."""
ATARI = "ale_py.env:AtariEnv"
"""What the registry names for every game of ALE."""


@dataclass(frozen=True)
class Maker:
    """Makes environment i of an id. cloudpickle takes it to workers, with the registry's entry."""

    spec: Any
    """gymnasium.envs.registration.EnvSpec: workers need not know the id."""
    kwargs: Mapping[str, Any]
    wrappers: tuple[tuple[str, Callable[[Any], Any]], ...]
    """Name and function of each, the innermost first."""
    where: str
    package: str = ""
    """Imported before the environment is made, as it was when the id was looked up."""
    own: tuple[Callable[[Any], Any], ...] = ()
    """Wrappers that the adapter itself adds, inside the user's."""

    def __call__(self, index: int) -> Any:
        import gymnasium

        if self.package:
            load_module(self.package, "env.id", self.where)
        env: Any = gymnasium.make(self.spec, **{"disable_env_checker": True, **self.kwargs})
        for add in self.own:
            env = add(env)
        for name, wrap in self.wrappers:
            env = wrapped(env, f"env.wrappers: {name}", wrap)
        return env


def gymnasium_factory(config: EnvConfig) -> PythonEnvFactory:
    """Makes the factory of `env.id`.

    Raises:
        UserError: an unknown id, a missing package, an argument that the environment does not take, or a wrapper that
            gives no environment.
    """
    made = maker(config)
    factory = factory_of(made, config)
    if made.spec.entry_point == ATARI:
        factory.advice = (  # type: ignore[attr-defined]
            f"env={config.id} has ALE's own observation ({_shape(factory)}); env=atari env.id={config.id} gives grey "
            "84×84 pixels, four frames of them, and settings that learn (docs/gymnasium.md)"
        )
    return factory


def _shape(factory: PythonEnvFactory) -> str:
    return ", ".join("×".join(map(str, leaf.shape)) for leaf in factory.spec.obs.values())


def maker(config: EnvConfig, example: str = "CartPole-v1") -> Maker:
    """Returns the maker that the configuration describes; every name in it was checked."""
    where = f"env.id={config.id}"
    if not config.id:
        raise UserError(
            f"env={config.factory} needs the environment's id, for example env={config.factory} env.id={example}"
        )
    package, name = package_and_id(config.id)
    if package:
        check_package(package, where)
        load_module(package, "env.id", where)
    spec = _found(name, where, package)
    _check_kwargs(spec, config.kwargs, where)
    wrappers = tuple((name, load_named(name, "env.wrappers")) for name in config.wrappers)
    return Maker(spec, dict(config.kwargs), wrappers, where, package)


def factory_of(made: Maker, config: EnvConfig, text: tuple[str, ...] = ()) -> PythonEnvFactory:
    """Makes the factory of a maker. Raises UserError in place of EnvError: nothing has started yet.

    Args:
        text: leaves to leave out as well, where the environment has them.
    """
    check_no_params(config)

    def unknown(name: str) -> str:
        takes = _takes(made.spec)
        return f"env.kwargs.{name}: unknown key; {made.spec.id} takes {', '.join(takes) or 'none'}"

    return factory_of_id(made, _Checked(made), config, CURES, unknown, text)


@dataclass(frozen=True)
class _Checked:
    """Makes the first environment, whose wrappers are checked one by one."""

    made: Maker

    def __call__(self, index: int) -> Any:
        env = replace(self.made, wrappers=())(index)
        for name, wrap in self.made.wrappers:
            outer = wrapped(env, f"env.wrappers: {name}", wrap)
            if wrong := check_env(outer):
                raise UserError(
                    f"env.wrappers: {name} is called with the environment and must return it wrapped; what it "
                    f"returned {wrong}"
                )
            env = outer
        return env


def _found(name: str, where: str, package: str) -> Any:
    """Returns the registry's entry of an id. Raises UserError, with the nearest id or the package to install."""
    import gymnasium

    register(name, where)
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        known = list(gymnasium.registry)
        own = registered_by(package) if package else []
        same = [id for id in known if re.sub(r"-v\d+$", "", id) == re.sub(r"-v\d+$", "", name)]
        near = same[-1] if same else nearest(name, known)
        if near:
            hint = f"did you mean '{near}'?"
        elif own:
            more = ", …" if len(own) > SHOWN else ""
            hint = f"{package} registers {', '.join(own[:SHOWN])}{more}"
        elif package:
            hint = f"importing {package} registers none of its own; give the module that calls gymnasium.register"
        else:
            hint = "an id of another package is given as package:id, which imports it first"
        raise UserError(f"{where}: Gymnasium has no such environment; {hint}") from error


def _check_kwargs(spec: Any, given: Mapping[str, Any], where: str) -> None:
    """Raises UserError for an argument that the environment does not take, or a package that it lacks."""
    own = {name: value for name, value in given.items() if name not in OF_MAKE}
    limit = given.get("max_episode_steps")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise UserError(
            f"env.kwargs.max_episode_steps={limit}: expected a whole number of steps of at least 1, or null"
        )
    creator = _creator(spec, where)
    try:
        signature = inspect.signature(creator)
    except (TypeError, ValueError):
        return  # written in C: the constructor itself refuses
    if "env_kwargs" not in signature.parameters:
        keywords(creator, {**spec.kwargs, **own}, "env.kwargs", 0)


def _creator(spec: Any, where: str) -> Callable[..., Any]:
    """Returns the function that makes the environment."""
    from gymnasium.envs.registration import load_env_creator

    if spec.entry_point is None:
        raise UserError(f"{where}: it has no environment that steps alone (entry_point), only a vector one")
    if callable(spec.entry_point):
        return spec.entry_point  # type: ignore[no-any-return]
    try:
        return load_env_creator(spec.entry_point)  # type: ignore[no-any-return]
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise UserError(missing_package(error, where) or f"{where}: {described(error)}") from error


def _takes(spec: Any) -> list[str]:
    """Returns the names of the constructor's arguments."""
    parameters = inspect.signature(_creator(spec, "")).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
