"""Divides a run's sizes among its processes: what the configuration says is global, what a process has is its share.

own = share(config, world)        # env.num_envs, trainer.batch_size, trainer.minibatch_size divided by world
"""

from __future__ import annotations

import copy

from metta_fast.config.keys import Config, get, put

GLOBAL = ("env.num_envs", "trainer.batch_size", "trainer.minibatch_size")
"""Keys that hold a run's whole size."""


def share(config: Config, world: int) -> Config:
    """Returns the configuration of one of `world` processes; `config` itself if there is one.

    Raises:
        ValueError: a size does not divide; resolve has checked that it does.
    """
    if world == 1:
        return config
    own = copy.deepcopy(config)
    for path in GLOBAL:
        size = get(own, path)
        if size % world:
            raise ValueError(f"{path}={size} does not divide by {world} processes")
        put(own, path, size // world)
    return own
