"""Makes the environments of other libraries.

Place in the flow: metta_fast.envs.make_factory looks env.factory up in `LIBRARIES`. To add a library: its adapter in
envs/adapters (or a folder of its own below envs/), a function here that imports it, a line in `LIBRARIES`, and
configs/env/NAME.yaml.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from metta_fast.contracts.env import EnvFactory

if TYPE_CHECKING:
    from metta_fast.config.keys import EnvConfig


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


LIBRARIES: dict[str, Callable[[EnvConfig], EnvFactory]] = {
    "gymnasium": _gymnasium,
    "minigrid": _minigrid,
    "atari": _atari,
    "pufferlib": _pufferlib,
    "pettingzoo": _pettingzoo,
    "mettagrid": _mettagrid,
}
"""Each imports its adapter only when it is called."""
