"""Makes environments: grid world, robots, small examples, and any Python environment. Import as `metta_fast.envs`.

    factory = make_factory(config.env)           # metta_fast.contracts.env.EnvFactory

`env.factory` selects one:

    grid                       the grid world (envs/grid)
    counter                    the smallest environment (envs/counter.py)
    robot                      robots on MuJoCo (envs/robot): env.params.task names one
    gymnasium, minigrid,       what env.id names in Gymnasium's registry (envs/adapters/)
    atari
    pettingzoo                 several agents, by PettingZoo's id or module (envs/adapters/pettingzoo.py)
    mettagrid                  MettaGrid's own simulator (envs/mettagrid): env.recipe names a configuration
    breakout, cartpole, snake  games in C (envs/games)
    pufferlib                  env=pufferlib env.factory=module:make: a PufferEnv (envs/adapters/pufferlib.py)
    c                          your own in C: env.path names its folder (envs/c_env)
    package.module:function    your own: called with the EnvConfig, it returns an EnvFactory or a callable
                               that makes environment i in Gymnasium's API (see envs/python_env.py):

        def make(config):                                # env.factory=my_module:make
            return lambda index: gymnasium.make("CartPole-v1")

                               or PettingZoo's; there the function may also return the environment itself, as it
                               does of batched ones: VectorEnv, EnvPool, tensors, JAX (envs/batched)

    a name                     the entry point of this name in an installed package (metta_fast/config/extension.py)
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from metta_fast.config.action_mask_keys import WITHOUT, check_masks
from metta_fast.config.extension import (
    ENVS,
    check_call,
    described,
    entry_point,
    entry_point_names,
)
from metta_fast.config.keys import did_you_mean, shown
from metta_fast.contracts.device_vector import DeviceFactory, check_device_factory
from metta_fast.contracts.env import EnvError, EnvFactory, check_factory
from metta_fast.contracts.env_answers import observations
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt

if TYPE_CHECKING:
    from metta_fast.config.keys import EnvConfig

GAMES = ("breakout", "cartpole", "snake")
"""Folders of envs/games: environments in C that come with metta_fast."""


def make_factory(env_config: EnvConfig) -> EnvFactory:
    """Makes the factory that `env_config.factory` names. A run makes it once and keeps it in `Resolved.factory`.

    Raises:
        UserError: an unknown name, or a configuration that it does not support.
    """
    from metta_fast.envs.repeat import repeated

    factory = _factory(env_config)
    if not isinstance(factory, EnvFactory):  # it has device vectors only: resolve refuses env.action_repeat
        return cast("EnvFactory", factory)
    check_masks(env_config, factory)
    known = observations(factory)
    if known and env_config.observation != "default":
        _check_observation(env_config, known)
    return repeated(factory, env_config.action_repeat)


def _factory(config: EnvConfig) -> EnvFactory | DeviceFactory:
    name = config.factory
    if config.path is not None and name != "c":
        raise UserError(
            f"env.path={config.path} has no effect with env.factory={name}; leave it out, or leave out env and "
            "env.factory"
        )
    if config.recipe is not None and name != "mettagrid":
        raise UserError(
            f"env.recipe={config.recipe} has no effect with env.factory={name}: it is for env=mettagrid; leave it out"
        )
    of_others = name in _KNOWN or (name in _ADAPTERS and name != "pettingzoo")
    if config.pad and (of_others or config.interface == "pufferlib"):
        raise UserError(
            f"env.pad=true has no effect with env.factory={name}: it is for several agents of different spaces in "
            "Python (PettingZoo); leave it out"
        )
    if config.interface == "pufferlib":
        return _pufferlib(config)
    if name in _ADAPTERS:
        return _ADAPTERS[name](config)
    _check_no_id(config)
    if config.drop and name in _KNOWN:
        raise UserError(
            f"env.drop={shown(config.drop)} has no effect with env.factory={name}: it is for environments in Python "
            "with a Dict observation; leave it out"
        )
    if config.leaf_kinds and name in _KNOWN:
        raise UserError(
            f"{_first_kind(config)} has no effect with env.factory={name}: it is for environments in Python; leave it "
            "out"
        )
    if name in _KNOWN:
        return _KNOWN[name](config)
    installed = [] if ":" in name else entry_point_names(ENVS)
    if ":" not in name and name not in installed:
        known = [*_KNOWN, *_ADAPTERS, *installed]
        raise UserError(
            f"env.factory={name!r} is not known; {did_you_mean(name, known)}"
            f"there are {', '.join(known)}, and your own as package.module:function"
        )
    return _custom(config)


def _check_observation(config: EnvConfig, known: Sequence[str]) -> None:
    if config.observation not in known:
        raise UserError(
            f"env.observation={config.observation}: {config.factory} has no such observation; "
            f"{did_you_mean(config.observation, known)}known: {', '.join(known)}"
        )


def _grid(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.grid.config import grid_config
    from metta_fast.envs.grid.env import GridFactory
    from metta_fast.envs.grid.names import OBSERVATIONS

    _check_observation(config, tuple(OBSERVATIONS))
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
        return GridFactory(**keys_of_env, **params)
    except UserError as error:
        raise UserError(
            f"{error} (the grid's keys are env.params.…; num_agents is env.agents_per_env)"
        ) from error


def _counter(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.counter import CounterFactory

    params = _params(config, "agents_per_env", "max_steps", "limit_is_terminal")
    _check_keys("counter", params, ("goal", "dtype"))
    return CounterFactory(
        agents_per_env=config.agents_per_env,
        max_steps=config.max_steps,
        limit_is_terminal=config.limit_is_terminal,
        **params,
    )


ROBOT_KEYS = ("task", "frame_skip", "on_unstable", "privileged", "xml_file", "preset", "njmax", "nconmax")
"""Keys of env.params that every robot has."""


def _robot(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.robot.env import RobotFactory, find_task

    if config.agents_per_env != 1:
        raise UserError(f"env.agents_per_env={config.agents_per_env}: a robot is one agent, give 1")
    params = _params(config, "num_envs", "max_steps", "limit_is_terminal")
    task = find_task(params.get("task", "ant"))
    _check_keys("robot", params, (*ROBOT_KEYS, *task.options))
    return RobotFactory(max_steps=config.max_steps, limit_is_terminal=config.limit_is_terminal, **params)


def _c(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.c_env.folder import folder_factory

    if not config.path:
        raise UserError(
            "env.factory=c makes an environment of your own in C: give its folder, env.path=./my_env"
        )
    return folder_factory(config.path, **_c_keys(config))


def _game(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.c_env.folder import folder_factory

    return folder_factory(Path(__file__).parent / "games" / config.factory, **_c_keys(config))


def _c_keys(config: EnvConfig) -> dict[str, Any]:
    """Returns the keys of an environment in C, with its own parameters."""
    keys = {
        "agents_per_env": config.agents_per_env,
        "max_steps": config.max_steps,
        "limit_is_terminal": config.limit_is_terminal,
    }
    if config.observation != "default":
        raise UserError(
            f"env.observation={config.observation}: environments in C have one observation; leave it out"
        )
    return keys | _params(config, *keys)


def _gymnasium(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.adapters.gymnasium import gymnasium_factory

    return gymnasium_factory(config)


def _minigrid(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.adapters.minigrid import minigrid_factory

    return minigrid_factory(config)


def _atari(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.adapters.atari import atari_factory

    return atari_factory(config)


def _pufferlib(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.adapters.pufferlib import pufferlib_factory

    return pufferlib_factory(config)


def _pettingzoo(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.adapters.pettingzoo import pettingzoo_factory

    return pettingzoo_factory(config)


def _mettagrid(config: EnvConfig) -> EnvFactory:
    from metta_fast.envs.mettagrid.config import mettagrid_factory

    return mettagrid_factory(config)


_ADAPTERS: dict[str, Callable[[Any], EnvFactory]] = {
    "gymnasium": _gymnasium,
    "minigrid": _minigrid,
    "atari": _atari,
    "pufferlib": _pufferlib,
    "pettingzoo": _pettingzoo,
    "mettagrid": _mettagrid,
}
"""Environments of other libraries."""
_KNOWN: dict[str, Callable[[Any], EnvFactory]] = {"grid": _grid, "counter": _counter, "robot": _robot}
_KNOWN |= dict.fromkeys(GAMES, _game) | {"c": _c}
OWN_STEP_COST = {"grid": "cheap", "counter": "cheap", "robot": "medium"} | dict.fromkeys(GAMES, "cheap")
"""The class of step time (env.step_cost) of each of our environments."""


def is_ours(config: EnvConfig) -> bool:
    """Returns whether the environment comes with metta_fast, so that configs/ has values tuned for it. Those of any
    other are derived (metta_fast/resolve/derived_defaults.py)."""
    return config.factory in OWN_STEP_COST


def _check_no_id(config: EnvConfig) -> None:
    """Raises UserError if keys for environments of Gymnasium's registry are set for another one."""
    for name in ("id", "kwargs", "wrappers"):
        value = getattr(config, name)
        if value:
            raise UserError(
                f"env.{name}={shown(value)} has no effect with env.factory={config.factory}: it is for environments of "
                "Gymnasium's registry; leave it out, or give env=gymnasium env.id=…"
            )


def _first_kind(config: EnvConfig) -> str:
    """Returns the first of env.leaf_kinds as it is typed."""
    name, kind = next(iter(config.leaf_kinds.items()))
    return f"env.leaf_kinds.{name}={shown(kind)}"


def _check_keys(name: str, params: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in params:
        if key not in known:
            raise UserError(
                f"env.params.{key}: {name} has no such key; {did_you_mean(key, known)}"
                f"It has {', '.join(known)}"
            )


def _params(config: EnvConfig, *taken: str) -> dict[str, Any]:
    """Returns env.params. Refuses names that are keys of env."""
    for key in taken:
        if key in config.params:
            cure = "agents_per_env" if key == "num_agents" else key
            raise UserError(f"env.params.{key} is set; give env.{cure}={config.params[key]} instead")
    return dict(config.params)


def _custom(config: EnvConfig) -> EnvFactory | DeviceFactory:
    """Makes a factory by module:name, or by an entry point of an installed package."""
    from metta_fast.envs.adapters.packages import load_function
    from metta_fast.envs.agents.zoo import Again, is_maker, is_zoo
    from metta_fast.envs.noted_config import OF_FACTORY, note
    from metta_fast.envs.puffer.placed import takes_buffers

    where = f"env.factory={config.factory}"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of the GPU
    function = (
        load_function(config.factory)
        if ":" in config.factory
        else entry_point(ENVS, config.factory, "env.factory")
    )
    if takes_buffers(function):
        raise UserError(
            f"{where} takes buf and seed, as what makes a PufferEnv does: type env=pufferlib "
            f"env.factory={config.factory}"
        )
    noted, unread = note(config)
    made = _called(function, noted, where)
    del noted
    batched = _batched(made, config)
    if batched is not None:
        batched.unread_keys = unread()  # type: ignore[attr-defined]
        return batched
    if isinstance(made, (EnvFactory, DeviceFactory)):
        if config.drop and "env.drop" in unread(OF_FACTORY):
            raise UserError(
                f"env.drop={shown(config.drop)} has no effect: {where} gives a factory of its own, "
                f"{type(made).__name__}; leave the leaves out there, as in PythonEnvFactory(…, drop=config.drop)"
            )
        if config.leaf_kinds and "env.leaf_kinds" in unread(OF_FACTORY):
            raise UserError(
                f"{_first_kind(config)} has no effect: {where} gives a factory of its own, {type(made).__name__}; set "
                "the kind there, as in Leaf(…, kind=…) or PythonEnvFactory(…, leaf_kinds=config.leaf_kinds)"
            )
        if config.pad and "env.pad" in unread(OF_FACTORY):
            raise UserError(
                f"env.pad=true has no effect: {where} gives a factory of its own, {type(made).__name__}; pad the "
                "spaces there, as in PythonEnvFactory(…, pad=config.pad)"
            )
        if not isinstance(made, EnvFactory):  # environments only on the learner's device
            check_device_factory(made)
            with suppress(AttributeError, TypeError):
                made.unread_keys = unread()  # type: ignore[attr-defined]
            return made
        factory = made
        if config.action_mask in ("info", *WITHOUT) and getattr(made, "mask_unknown", False):
            factory = made.with_mask(config.action_mask)  # type: ignore[attr-defined]
    elif is_maker(made) or is_zoo(made):
        from metta_fast.envs.python_env import PythonEnvFactory

        if not is_maker(
            made
        ):  # make(config) is itself the maker: PettingZoo's parallel_env() are such functions
            with suppress(Exception):
                made.close()
            made = Again(function, config)
        wrong = check_call(made, "a function of the environment's index, as in return lambda index: MyEnv()")
        if wrong:
            raise UserError(f"{where} gave a maker of environments that does not fit: {wrong}")
        try:
            factory = PythonEnvFactory(
                made,
                name=config.name,
                drop=config.drop,
                action_mask=config.action_mask,
                leaf_kinds=config.leaf_kinds,
                pad=config.pad,
            )
        except EnvError as error:
            raise UserError(f"{where}: {error}") from error
    elif hasattr(made, "action_space"):
        raise UserError(
            f"{where} gave the environment {type(made).__name__} itself: return a maker of environments, as in "
            "return lambda index: MyEnv()"
        )
    else:
        raise UserError(
            f"{where} gave {type(made).__name__}, expected an EnvFactory or a callable that makes environment i: "
            "return a maker, as in return lambda index: MyEnv(), or a batched environment (docs/batched.md)"
        )
    check_factory(factory)
    with suppress(AttributeError, TypeError):  # a user's own class may allow no attribute
        factory.unread_keys = unread()  # type: ignore[attr-defined]
    return factory


def _batched(made: Any, config: EnvConfig) -> DeviceFactory | None:
    """Returns the factory of a batched environment; None for anything else."""
    from metta_fast.envs.batched.interface import interface_of

    if isinstance(made, (EnvFactory, DeviceFactory)) or not interface_of(made):
        return None
    from metta_fast.envs.batched.factory import BatchedEnvFactory

    if config.pad:
        raise UserError(
            "env.pad=true has no effect: a batched environment has one space for all; leave it out"
        )
    return BatchedEnvFactory(
        made,
        name=config.name,
        drop=config.drop,
        leaf_kinds=config.leaf_kinds,
        action_mask=config.action_mask,
    )


def _called(function: Callable[..., Any], config: EnvConfig, where: str) -> Any:
    """Returns what the user's function makes of the configuration."""
    if wrong := check_call(function, "make(config), where config is the environment's configuration"):
        module, _, name = config.factory.partition(":")
        like = name in ("parallel_env", "env", "raw_env")
        hint = f"; a module such as PettingZoo's is given as env=pettingzoo env.id={module}" if like else ""
        raise UserError(f"{where}: {wrong}{hint}")
    try:
        return function(config)
    except UserError:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        if isinstance(error, EnvError):
            raise UserError(f"{where}: {error}") from error
        from metta_fast.envs.adapters.packages import lacking

        if lacks := lacking(error, where):
            raise UserError(lacks) from error
        name = getattr(function, "__name__", config.factory)
        raise UserError(f"{where}: {name}(config) failed: {described(error)}") from error
