"""Makes factories of environments in Python from the keys of env, and turns what goes wrong into messages.

Place in the flow: gymnasium.py and pettingzoo.py make what env.id names with `factory_of_id`; pufferlib.py and
registry/users.py, which have messages of their own, call `python_factory`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from metta_fast.config.extension import described
from metta_fast.config.keys import EnvConfig
from metta_fast.contracts.env import EnvError
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.adapters.packages import missing_package
from metta_fast.envs.python_env import PythonEnvFactory


class IdMaker(Protocol):
    """Makes environment i of an id."""

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """env.kwargs, with what the id is registered with."""

    @property
    def where(self) -> str:
        """env.id as it was given, for messages."""

    def __call__(self, index: int) -> Any:
        """Returns environment `index`."""


def python_factory(
    make_env: Callable[[int], Any], config: EnvConfig, drop_if_there: Sequence[str] = ()
) -> PythonEnvFactory:
    """Makes the factory with the keys of env that are the same for every environment in Python.

    Args:
        drop_if_there: leaves to leave out as well, where the environment has them.

    Raises:
        EnvError: the first environment fails, or has spaces that are not supported.
    """
    return PythonEnvFactory(
        make_env,
        name=config.name,
        drop=config.drop,
        leaf_kinds=config.leaf_kinds,
        drop_if_there=drop_if_there,
        action_mask=config.action_mask,
        pad=config.pad,
    )


def factory_of_id(
    made: IdMaker,
    first: Callable[[int], Any],
    config: EnvConfig,
    cures: Mapping[str, str],
    unknown: Callable[[str], str],
    drop_if_there: Sequence[str] = (),
) -> PythonEnvFactory:
    """Makes the factory of what env.id names. Raises UserError in place of EnvError: nothing has started yet.

    Args:
        made: makes the environments.
        first: makes the one whose spaces are read, and checks it and its wrappers.
        cures: keys that have no effect here → what to type instead.
        unknown: returns the message for an argument that the constructor does not take.
    """
    try:
        factory = python_factory(first, config, drop_if_there)
    except EnvError as error:
        cause = error.__cause__
        if isinstance(cause, UserError):
            raise cause from error
        raise UserError(_cure(cause, made, unknown) or f"{made.where}: {error}") from error
    factory.make_env = made
    factory.unread_keys = frozenset(cures)  # type: ignore[attr-defined]
    factory.key_cures = cures  # type: ignore[attr-defined]
    return factory


def check_no_params(config: EnvConfig) -> None:
    """Raises UserError if env.params is set where the environment's arguments are env.kwargs."""
    if config.params:
        key = next(iter(config.params))
        raise UserError(
            f"env.params.{key} has no effect with env.id={config.id}: arguments of the environment are "
            f"env.kwargs.{key}=…"
        )


def wrapped(env: Any, named: str, wrap: Callable[[Any], Any]) -> Any:
    """Returns wrap(env). Raises UserError if it fails; `named` is the key and the wrapper's name, for the message."""
    try:
        return wrap(env)
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise UserError(
            f"{named}(env) failed: {described(error)}; a wrapper is called with the environment alone"
        ) from error


def _cure(error: BaseException | None, made: IdMaker, unknown: Callable[[str], str]) -> str:
    """Returns the message for a failure of the constructor whose cure is known, or ""."""
    found = error
    while found is not None:
        if text := missing_package(found, made.where):
            return text
        name = re.search(r"unexpected keyword argument '(\w+)'", str(found))
        if isinstance(found, TypeError) and name and name[1] in made.kwargs:
            return unknown(name[1])
        found = found.__cause__ or found.__context__
    if made.kwargs and error is not None and not isinstance(error, UserError):
        return f"{made.where} with env.kwargs={dict(made.kwargs)} could not be made: {described(error)}"
    return ""
