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

To add one of ours: envs/registry/ours.py; of another library: envs/registry/libraries.py. What a user names:
envs/registry/users.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from metta_fast.config.action_mask_keys import check_masks
from metta_fast.config.extension import ENVS, entry_point_names
from metta_fast.config.keys import did_you_mean
from metta_fast.contracts.device_vector import DeviceFactory
from metta_fast.contracts.env import EnvFactory
from metta_fast.contracts.env_answers import observations
from metta_fast.contracts.errors import UserError
from metta_fast.envs.registry.key_checks import (
    check_image,
    check_no_id,
    check_no_leaves,
    check_observation,
    check_path_recipe_pad,
)
from metta_fast.envs.registry.libraries import LIBRARIES
from metta_fast.envs.registry.ours import GAMES, OURS, OWN_STEP_COST, is_ours
from metta_fast.envs.registry.users import user_factory

if TYPE_CHECKING:
    from metta_fast.config.keys import EnvConfig

__all__ = ["GAMES", "OWN_STEP_COST", "is_ours", "make_factory"]


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
        check_observation(env_config, known)
    return repeated(factory, env_config.action_repeat)


def _factory(config: EnvConfig) -> EnvFactory | DeviceFactory:
    name = config.factory
    puffer = config.interface == "pufferlib"
    check_image(config)
    check_path_recipe_pad(config, puffer or name in OURS or (name in LIBRARIES and name != "pettingzoo"))
    if puffer or name in LIBRARIES:
        return LIBRARIES["pufferlib" if puffer else name](config)
    check_no_id(config)
    if name in OURS:
        check_no_leaves(config)
        return OURS[name](config)
    installed = [] if ":" in name else entry_point_names(ENVS)
    if ":" not in name and name not in installed:
        known = [*OURS, *LIBRARIES, *installed]
        raise UserError(
            f"env.factory={name!r} is not known; {did_you_mean(name, known)}"
            f"there are {', '.join(known)}, and your own as package.module:function"
        )
    return user_factory(config)
