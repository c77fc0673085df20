"""Makes the factory of env=mettagrid: env.recipe with env.kwargs gives a MettaGridConfig, and env.params changes it.

    env=mettagrid env.recipe=arena env.kwargs.mines=4 env.params.game.obs.num_tokens=100

Place in the flow: metta_fast.envs.make_factory calls `mettagrid_factory`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from metta_fast.config.extension import described, keywords, load_named
from metta_fast.config.keys import EnvConfig, did_you_mean, shown
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.contracts.progress import watched
from metta_fast.envs.mettagrid.factory import MettaGridFactory
from metta_fast.envs.mettagrid.game import Game, new_buffers
from metta_fast.envs.mettagrid.package import needs_mettagrid
from metta_fast.envs.mettagrid.recipes import RECIPES

CURES = {"env.max_steps": "give env.params.game.max_steps=…"}
"""Keys that have no effect here, and what to type instead."""
AGENTS = "num_agents"
"""The argument of a recipe that env.agents_per_env fills in, where it has no default."""


def mettagrid_factory(config: EnvConfig) -> MettaGridFactory:
    """Makes the factory that the configuration describes.

    Raises:
        UserError: no or an unknown recipe, a missing package, a recipe that gives something else, a field that a
            MettaGridConfig does not have, or one with which the simulator cannot be made.
    """
    where = f"env.recipe={shown(config.recipe)}"
    if not config.recipe:
        raise UserError(
            f"{where}: env=mettagrid needs a recipe, for example env.recipe={next(iter(RECIPES))}, or your own "
            "function as env.recipe=my_module:make, which returns a MettaGridConfig"
        )
    if ":" not in config.recipe and config.recipe not in RECIPES:
        raise UserError(
            f"{where}: {did_you_mean(config.recipe, RECIPES)}there are {', '.join(RECIPES)}, the package's own such as "
            "mettagrid.builder.envs:make_navigation, and yours as package.module:function"
        )
    _check_keys(config)
    needs_mettagrid(where)
    made = _made(config, where).model_copy(deep=True)
    for field, value in config.params.items():
        _change(made, field, value, "env.params")
    with_errors = _named(where)
    factory = with_errors(
        lambda: MettaGridFactory(made, name=config.name, limit_is_terminal=config.limit_is_terminal)
    )
    with_errors(lambda: _try(factory))
    factory.unread_keys, factory.key_cures = frozenset(CURES), CURES  # type: ignore[attr-defined]
    return factory


def _check_keys(config: EnvConfig) -> None:
    for name in ("id", "wrappers", "drop", "leaf_kinds"):
        value = getattr(config, name)
        if value:
            raise UserError(f"env.{name}={shown(value)} has no effect with env=mettagrid; leave it out")


def _made(config: EnvConfig, where: str) -> Any:
    """Returns the MettaGridConfig that the recipe gives."""
    from mettagrid.config.mettagrid_config import MettaGridConfig

    assert config.recipe is not None
    recipe = RECIPES.get(config.recipe) or load_named(config.recipe, "env.recipe")
    found = _called(recipe, config, where)
    if not isinstance(found, MettaGridConfig):
        raise UserError(
            f"{where} gave {type(found).__name__}, expected a MettaGridConfig of the package mettagrid"
        )
    return found


def _called(recipe: Callable[..., Any], config: EnvConfig, where: str) -> Any:
    given = dict(config.kwargs)
    try:
        count = inspect.signature(recipe).parameters.get(AGENTS)
    except (TypeError, ValueError):
        count = None
    if count is not None and (count.default is count.empty or recipe in RECIPES.values()):
        given.setdefault(AGENTS, config.agents_per_env)
    keys = keywords(recipe, given, "env.kwargs", 0)
    try:
        with watched():
            return recipe(**keys)
    except BaseException as error:  # a script may call sys.exit
        if is_interrupt(error):
            raise
        raise UserError(f"{where} failed: {_line(error)}") from error


def _change(node: Any, name: str, value: Any, where: str) -> None:
    """Sets a field of a configuration, or the fields of the one within it. Raises UserError."""
    from pydantic import TypeAdapter

    path = f"{where}.{name}"
    if isinstance(node, Mapping):
        inner = node.get(name)
    else:
        fields = type(node).model_fields
        known = [
            *fields,
            *(key for key, kind in inspect.getmembers(type(node)) if isinstance(kind, property)),
        ]
        if name not in known:
            raise UserError(
                f"{path}: MettaGrid's {type(node).__name__} has no such field; {did_you_mean(name, list(fields))}"
                f"it has {', '.join(fields)}"
            )
        inner = getattr(node, name)
    if isinstance(value, Mapping) and (isinstance(inner, Mapping) or hasattr(type(inner), "model_fields")):
        for key, more in value.items():
            _change(inner, str(key), more, path)
        return
    try:
        if isinstance(node, dict):
            node[name] = TypeAdapter(type(inner)).validate_python(value) if name in node else value
            return
        field = type(node).model_fields.get(name)
        setattr(
            node,
            name,
            value if field is None else TypeAdapter(field.rebuild_annotation()).validate_python(value),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}={shown(value)}: {_line(error)}") from error


def _named(where: str) -> Callable[[Callable[[], Any]], Any]:
    """Returns a function that calls another; an error of the package becomes a message that begins with `where`."""

    def call(function: Callable[[], Any]) -> Any:
        try:
            with watched():
                return function()
        except BaseException as error:
            if is_interrupt(error):
                raise
            text = str(error) if isinstance(error, UserError) else _line(error)
            raise UserError(f"{where}: {text}") from error

    return call


def _try(factory: MettaGridFactory) -> None:
    """Starts one episode: the package checks some of a configuration only then."""
    import logging

    import numpy as np

    spec = factory.spec
    n = spec.agents_per_env
    flags = {
        "rewards": np.zeros(n, np.float32),
        **{k: np.zeros(n, np.bool_) for k in ("terminals", "truncations")},
    }
    actions, vibes = np.zeros((2, n), np.int32)
    game = Game(
        factory.config, 0, new_buffers(np.zeros((n, *spec.obs["obs"].shape), np.uint8), actions, vibes, flags)
    )
    log = logging.getLogger("mettagrid.simulator.simulator")
    before, log.disabled = log.disabled, True  # it prints the whole configuration beside the error
    try:
        game.begin(0)
    finally:
        log.disabled = before
        game.close()


def _line(error: BaseException) -> str:
    """Returns an error in one line; of one of pydantic's the first that it lists."""
    listed = getattr(error, "errors", None)
    if callable(listed):
        for first in listed():
            place = ".".join(map(str, first["loc"]))
            return f"{place}: {first['msg']}" if place else str(first["msg"])
    return " ".join(described(error).split())
