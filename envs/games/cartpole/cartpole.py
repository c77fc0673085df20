"""Describes Gymnasium's CartPole-v1 to metta_fast; its rules are in cartpole.h.

metta-fast train env=cartpole_c trainer.stop_at_return=solved
"""

import numpy as np

from metta_fast.contracts.env import ActionSpec, Array, Leaf
from metta_fast.envs.c_env.definition import CEnv

WIDTH, HEIGHT, GROUND, METRE = 600, 300, 240, 110
"""Pixels: of the picture, of the ground from the top, of a metre."""


def draw(obs: Array, state: Array) -> Array:
    """Draws the cart on its rail, and the pole (1 m)."""
    place, _, angle, _ = obs[0]
    x, y = WIDTH / 2 + place * METRE, GROUND - 20
    picture = np.full((HEIGHT, WIDTH, 3), 245, np.uint8)
    picture[GROUND : GROUND + 2] = 60
    for limit in (-2.4, 2.4):
        picture[GROUND - 8 : GROUND + 10, round(WIDTH / 2 + limit * METRE) - 1 :][:, :2] = (200, 72, 72)
    down, right = np.mgrid[:HEIGHT, :WIDTH]
    picture[(abs(right - x) < 30) & (abs(down - GROUND + 10) < 10)] = (40, 60, 80)
    along = np.clip((right - x) * np.sin(angle) - (down - y) * np.cos(angle), 0, METRE)
    far = np.hypot(right - x - along * np.sin(angle), down - y + along * np.cos(angle))
    picture[far < 5] = (202, 152, 101)
    return picture


env = CEnv(
    "cartpole",
    obs=Leaf((4,), "float32"),
    action=ActionSpec("discrete", nvec=(2,)),
    reward_threshold=475.0,
    render=draw,
)
