"""Makes the factory of a user's environment: by module:name, or by an entry point of an installed package.

    env.factory ──► function(config) ──► an EnvFactory or DeviceFactory, a maker of environments in Python, or a
                                         batched environment

Place in the flow: metta_fast.envs.make_factory calls `user_factory` for every name that is neither ours nor a
library's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from metta_fast.config.action_mask_keys import WITHOUT
from metta_fast.config.extension import ENVS, check_call, described, entry_point
from metta_fast.config.keys import shown
from metta_fast.contracts.device_vector import DeviceFactory, check_device_factory
from metta_fast.contracts.env import EnvError, EnvFactory, check_factory
from metta_fast.contracts.errors import UserError
from metta_fast.contracts.interrupt import is_interrupt
from metta_fast.envs.registry.key_checks import first_kind

if TYPE_CHECKING:
    from metta_fast.config.keys import EnvConfig


def user_factory(config: EnvConfig) -> EnvFactory | DeviceFactory:
    """Makes the factory of the environment that the user's function gives; env.factory names the function.

    Raises:
        UserError: the function fails, or gives something that is no environment.
    """
    from metta_fast.envs.adapters.packages import load_function
    from metta_fast.envs.agents.zoo import is_maker, is_zoo
    from metta_fast.envs.noted_config import note
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
    batched = _batched(made, config, function)
    if batched is not None:
        batched.unread_keys = unread()  # type: ignore[attr-defined]
        return batched
    if isinstance(made, (EnvFactory, DeviceFactory)):
        factory = _checked(made, config, unread, where)
    elif is_maker(made) or is_zoo(made):
        factory = _of_maker(made, function, config, where)
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
    if isinstance(factory, EnvFactory):
        check_factory(factory)
    else:  # environments only on the learner's device
        check_device_factory(factory)
    with suppress(AttributeError, TypeError):  # a user's own class may allow no attribute
        factory.unread_keys = unread()  # type: ignore[union-attr]
    return factory


def _checked(
    made: EnvFactory | DeviceFactory,
    config: EnvConfig,
    unread: Callable[[Sequence[str]], frozenset[str]],
    where: str,
) -> EnvFactory | DeviceFactory:
    """Returns the user's own factory, with the mask that env.action_mask asks for. Refuses keys it leaves unread."""
    from metta_fast.envs.noted_config import OF_FACTORY

    own = f"has no effect: {where} gives a factory of its own, {type(made).__name__};"
    if config.drop and "env.drop" in unread(OF_FACTORY):
        raise UserError(
            f"env.drop={shown(config.drop)} {own} leave the leaves out there, as in "
            "PythonEnvFactory(…, drop=config.drop)"
        )
    if config.leaf_kinds and "env.leaf_kinds" in unread(OF_FACTORY):
        raise UserError(
            f"{first_kind(config)} {own} set the kind there, as in Leaf(…, kind=…) or "
            "PythonEnvFactory(…, leaf_kinds=config.leaf_kinds)"
        )
    if config.pad and "env.pad" in unread(OF_FACTORY):
        raise UserError(f"env.pad=true {own} pad the spaces there, as in PythonEnvFactory(…, pad=config.pad)")
    masked = config.action_mask in ("info", *WITHOUT)
    if masked and isinstance(made, EnvFactory) and getattr(made, "mask_unknown", False):
        return made.with_mask(config.action_mask)  # type: ignore[attr-defined, no-any-return]
    return made


def _of_maker(made: Any, function: Callable[..., Any], config: EnvConfig, where: str) -> EnvFactory:
    """Returns the factory of environments in Python: `made` makes environment i, or is PettingZoo's and made again."""
    from metta_fast.envs.adapters.python_factory import python_factory
    from metta_fast.envs.agents.zoo import Again, is_maker

    if not is_maker(made):  # make(config) is itself the maker: PettingZoo's parallel_env() are such functions
        with suppress(Exception):
            made.close()
        made = Again(function, config)
    wrong = check_call(made, "a function of the environment's index, as in return lambda index: MyEnv()")
    if wrong:
        raise UserError(f"{where} gave a maker of environments that does not fit: {wrong}")
    try:
        return python_factory(made, config)
    except EnvError as error:
        raise UserError(f"{where}: {error}") from error


def _batched(made: Any, config: EnvConfig, function: Callable[..., Any]) -> DeviceFactory | None:
    """Returns the factory of a batched environment, which `function` makes again for evaluations; None for anything
    else."""
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
        again=lambda num_envs: function(replace(config, num_envs=num_envs)),
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
