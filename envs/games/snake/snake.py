"""Describes the game of snake to metta_fast; its rules are in snake.h.

metta-fast train env=snake
"""

from metta_fast.contracts.env import ActionSpec, Leaf
from metta_fast.envs.c_env.definition import CEnv

env = CEnv(
    "snake",
    obs=lambda params: Leaf((3, params["size"], params["size"]), "float32", "vector"),
    action=ActionSpec("discrete", nvec=(4,)),
    params={"size": 8, "death_reward": -1.0},
    limits={"size": (4, 16)},
    stats=("eaten",),
    lanes=True,
)
