"""Describes Gymnasium's CartPole-v1 to metta_fast; its rules are in cartpole.h.

metta-fast train env=cartpole_c trainer.stop_at_return=solved
"""

from metta_fast.contracts.env import ActionSpec, Leaf
from metta_fast.envs.c_env.definition import CEnv

env = CEnv(
    "cartpole",
    obs=Leaf((4,), "float32"),
    action=ActionSpec("discrete", nvec=(2,)),
    reward_threshold=475.0,
)
