"""Describes the game of breakout to metta_fast; its rules are in breakout.h.

metta-fast train env=breakout
"""

from metta_fast.contracts.env import ActionSpec, Leaf
from metta_fast.envs.c_env.definition import CEnv

env = CEnv(
    "breakout",
    obs=Leaf((117,), "float32"),
    action=ActionSpec("discrete", nvec=(3,)),
    params={"repeat": 4, "lives": 5},
    limits={"repeat": (1, 16), "lives": (1, 100)},
    stats=("score", "bricks"),
    lanes=True,
)
