"""Provides recordings for tests: a grid world with every kind of change, played at random."""

import numpy as np

from metta_fast.config.keys import Config
from metta_fast.envs import make_factory
from metta_fast.episodes.record import record
from metta_fast.inference.players import RandomPlayer

PARAMS = {
    "room_size": [6, 7],
    "objects": {"mine_red": 2, "generator_red": 1, "altar": 1, "lasery": 1, "wall": 3, "block": 3},
    "recipes": {"mine_red": {"cooldown": 3, "initial": 5}, "lasery": {"inputs": {}, "initial": 3, "cooldown": 4}},
    "rewards": {"heart": 1.0, "ore_red": {"weight": 0.1, "cap": 0.3}},
    "actions": ["noop", "move", "rotate", "put_items", "get_items", "attack", "swap", "change_color", "change_glyph"],
    "groups": "one",
    "group_reward_pct": 0.5,
    "freeze_duration": 4,
}  # fmt: skip


def busy_config(max_steps=300, agents=3, **params):
    config = Config()
    config.env.agents_per_env, config.env.max_steps = agents, max_steps
    config.env.params = PARAMS | params
    return config


class Eager(RandomPlayer):
    """Random, but arguments are small, so that many actions work."""

    def act(self, rows, batch):
        action = super().act(rows, batch)
        action[:, 1] %= 4
        return action


def busy_recording(seed=5, episode=2, **keys):
    """(factory, recording) of environment `episode`."""
    factory = make_factory(busy_config(**keys).env)
    player = Eager(factory.spec, 1)
    return factory, record(factory, player, seed=seed, episode=episode, about={"env": "busy", "seed": seed})


def actions_of(recording):
    return recording.action.astype(np.int32)
