"""Makes environments of the package minigrid: MiniGrid and BabyAI.

    metta-fast train env=MiniGrid-Empty-5x5-v0
    metta-fast train env=minigrid env.id=MiniGrid-DoorKey-5x5-v0 env.wrappers=[minigrid.wrappers:ImgObsWrapper]

The observation is what the agent sees: `image`, 7 × 7 cells of (object, colour, state), and `direction`. The text
`mission` is left out where the environment, wrapped, has it.

Place in the flow: metta_fast.envs.make_factory calls `minigrid_factory`; gymnasium.py makes the environments.
"""

from __future__ import annotations

from metta_fast.config.keys import EnvConfig
from metta_fast.envs.adapters.gymnasium import factory_of, maker
from metta_fast.envs.python_env import PythonEnvFactory

TEXT = ("mission",)
"""Leaves that no policy of ours reads."""


def minigrid_factory(config: EnvConfig) -> PythonEnvFactory:
    """Makes the factory of `env.id`. Raises UserError as gymnasium_factory does."""
    return factory_of(maker(config, "MiniGrid-Empty-5x5-v0"), config, TEXT)
