"""Refuses keys of env that have no effect with the environment that env.factory names.

Place in the flow: metta_fast.envs.make_factory calls these before the environment is made. Keys that can only be
checked afterwards: envs/env_keys.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from metta_fast.config.keys import ImageConfig, did_you_mean, shown
from metta_fast.contracts.errors import UserError

if TYPE_CHECKING:
    from metta_fast.config.keys import EnvConfig


def check_path_recipe_pad(config: EnvConfig, one_space: bool) -> None:
    """Checks the keys that only one kind of environment reads. `one_space`: whether all agents of this one share a
    space.

    Raises:
        UserError: one is set for another kind.
    """
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
    if config.pad and one_space:
        raise UserError(
            f"env.pad=true has no effect with env.factory={name}: it is for several agents of different spaces in "
            "Python (PettingZoo); leave it out"
        )


def check_image(config: EnvConfig) -> None:
    """Raises UserError if keys of pictures are set for an environment without cameras, or without naming one."""
    if config.image.cameras and config.factory != "robot":
        raise UserError(
            f"env.image.cameras={shown(config.image.cameras)} has no effect with env.factory={config.factory}: it is "
            "for our robots; leave it out"
        )
    if not config.image.cameras and config.renderer != "auto":
        raise UserError(
            f"env.renderer={config.renderer} has no effect without env.image.cameras, as in env=lift_cube_wrist; leave "
            "it out, or name cameras of a robot's model"
        )
    for name, value in vars(config.image).items():
        if not config.image.cameras and value != getattr(ImageConfig(), name):
            raise UserError(
                f"env.image.{name}={shown(value)} has no effect without env.image.cameras, as in env=lift_cube_wrist; "
                "leave it out, or name cameras of a robot's model"
            )


def check_no_id(config: EnvConfig) -> None:
    """Raises UserError if keys for environments of Gymnasium's registry are set for another one."""
    for name in ("id", "kwargs", "wrappers"):
        value = getattr(config, name)
        if value:
            raise UserError(
                f"env.{name}={shown(value)} has no effect with env.factory={config.factory}: it is for environments of "
                "Gymnasium's registry; leave it out, or give env=gymnasium env.id=…"
            )


def check_no_leaves(config: EnvConfig) -> None:
    """Raises UserError if keys for observations of environments in Python are set for one of ours."""
    if config.drop:
        raise UserError(
            f"env.drop={shown(config.drop)} has no effect with env.factory={config.factory}: it is for environments in "
            "Python with a Dict observation; leave it out"
        )
    if config.leaf_kinds:
        raise UserError(
            f"{first_kind(config)} has no effect with env.factory={config.factory}: it is for environments in Python; "
            "leave it out"
        )


def check_observation(config: EnvConfig, known: Sequence[str]) -> None:
    """Raises UserError if env.observation is none of the names in `known`."""
    if config.observation not in known:
        raise UserError(
            f"env.observation={config.observation}: {config.factory} has no such observation; "
            f"{did_you_mean(config.observation, known)}known: {', '.join(known)}"
        )


def first_kind(config: EnvConfig) -> str:
    """Returns the first of env.leaf_kinds as it is typed."""
    name, kind = next(iter(config.leaf_kinds.items()))
    return f"env.leaf_kinds.{name}={shown(kind)}"
