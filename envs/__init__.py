"""Environments: the native contract, the grid world, and small examples. Importable as `metta_fast.envs`.

    factory = make_factory(config.env)           # metta_fast.contracts.env.EnvFactory

`env.factory` names what makes them:

    grid                       the grid world (envs/grid)
    counter                    the smallest environment (envs/counter.py)
    robot                      robots on MuJoCo (envs/robot): env.params.task names one
    package.module:function    your own: called with the EnvConfig, it returns an EnvFactory, or a callable
                               that makes environment i in Gymnasium's API (see envs/python_env.py):

        def make(config):                                # env.factory=my_module:make
            return lambda index: gymnasium.make("CartPole-v1")
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from metta_fast.config.keys import did_you_mean, nearest
from metta_fast.contracts.env import EnvError, EnvFactory
from metta_fast.contracts.errors import UserError

if TYPE_CHECKING:
    from metta_fast.config.keys import EnvConfig


def make_factory(env_config: EnvConfig, *, num_envs: int | None = None) -> EnvFactory:
    """The factory that `env_config.factory` names, for num_envs (default: env_config's) environments.

    Raises:
        UserError: nothing of that name, or a configuration that it cannot make.
    """
    from metta_fast.envs.repeat import repeated

    config = env_config if num_envs is None else dataclasses.replace(env_config, num_envs=num_envs)
    return repeated(_factory(config), config.action_repeat)


def _factory(config: EnvConfig) -> EnvFactory:
    name = config.factory
    if ":" in name:
        return _custom(config)
    if name not in _KNOWN:
        raise UserError(
            f"env.factory={name!r} is not known; {did_you_mean(name, _KNOWN)}"
            f"there are {', '.join(_KNOWN)}, and your own as package.module:function"
        )
    return _KNOWN[name](config)


def _grid(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.grid.config import grid_config
    from metta_fast.envs.grid.env import GridFactory

    keys_of_env = {
        "num_agents": config.agents_per_env,
        "observation": config.observation,
        "max_steps": config.max_steps,
        "limit_is_terminal": config.limit_is_terminal,
    }
    params = _params(config, *keys_of_env)
    known = [key for key in inspect.signature(grid_config).parameters if key not in keys_of_env]
    _check_keys("grid", params, known)
    try:
        return GridFactory(config.num_envs, **keys_of_env, **params)
    except UserError as error:
        raise UserError(
            f"{error} (the grid's keys are env.params.…; num_agents is env.agents_per_env)"
        ) from error


def _counter(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.counter import CounterFactory

    params = _params(config, "agents_per_env", "max_steps", "limit_is_terminal")
    _check_keys("counter", params, ("goal", "dtype"))
    return CounterFactory(
        config.num_envs,
        agents_per_env=config.agents_per_env,
        max_steps=config.max_steps,
        limit_is_terminal=config.limit_is_terminal,
        **params,
    )


def _robot(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.robot.env import RobotFactory, find_task

    if config.agents_per_env != 1:
        raise UserError(f"env.agents_per_env={config.agents_per_env}: a robot is one agent, give 1")
    params = _params(config, "num_envs", "max_steps", "limit_is_terminal")
    task = find_task(params.get("task", "ant"))
    _check_keys(
        "robot", params, ("task", "frame_skip", "on_unstable", "privileged", "xml_file", *task.options)
    )
    return RobotFactory(
        config.num_envs, max_steps=config.max_steps, limit_is_terminal=config.limit_is_terminal, **params
    )


_KNOWN: dict[str, Callable[[Any], EnvFactory]] = {"grid": _grid, "counter": _counter, "robot": _robot}


def _check_keys(name: str, params: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in params:
        if key not in known:
            raise UserError(
                f"env.params.{key}: {name} has no such key; {did_you_mean(key, known)}"
                f"It has {', '.join(known)}"
            )


def _params(config: EnvConfig, *taken: str) -> dict[str, Any]:
    """env.params, which may not repeat what has a key of its own in env."""
    for key in taken:
        if key in config.params:
            cure = "agents_per_env" if key == "num_agents" else key
            raise UserError(f"env.params.{key} is set; give env.{cure} instead")
    return dict(config.params)


def _custom(config: EnvConfig) -> EnvFactory:
    module_name, _, function_name = config.factory.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), function_name)):
        raise UserError(
            f"env.factory={config.factory!r}: expected package.module:function, as my_module:make"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module_name}.".startswith(f"{missing}."):
            raise UserError(
                f"env.factory={config.factory!r}: there is no module {missing!r} (looked from the current "
                "folder and in the installed packages; expected package.module:function)"
            ) from error
        raise UserError(
            f"env.factory={config.factory!r}: the module {module_name} cannot be imported: {_described(error)}"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        names = [n for n in vars(module) if callable(getattr(module, n)) and not n.startswith("_")]
        near = nearest(function_name, names)
        raise UserError(
            f"env.factory={config.factory!r}: {module_name} has no function {function_name!r}"
            + (f"; did you mean {near!r}?" if near else "")
        )
    try:
        made = function(config)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"env.factory={config.factory!r}: {function_name}(config) failed: {_described(error)}"
        ) from error
    if isinstance(made, EnvFactory):
        factory = made
    elif callable(made):
        from metta_fast.envs.python_env import PythonEnvFactory

        try:
            factory = PythonEnvFactory(made, config.num_envs, name=config.name)
        except EnvError as error:
            raise UserError(f"env.factory={config.factory!r}: {error}{_place(error.__cause__)}") from error
    else:
        raise UserError(
            f"env.factory={config.factory!r} gave {type(made).__name__}: expected an EnvFactory or callable "
            "that makes environment i"
        )
    if factory.spec.num_envs != config.num_envs:
        raise UserError(
            f"env.factory={config.factory!r} made {factory.spec.num_envs} environments, env.num_envs is "
            f"{config.num_envs}: pass config.num_envs on"
        )
    return factory


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}{_place(error)}"


def _place(error: BaseException | None) -> str:
    """Where a user's code failed, as ` (file:line)`; a syntax error's message says it already."""
    frames = traceback.extract_tb(error.__traceback__) if error else []
    if not frames or isinstance(error, SyntaxError):
        return ""
    return f" ({frames[-1].filename}:{frames[-1].lineno})"
