"""Describes the game of snake to metta_fast; its rules are in snake.h.

metta-fast train env=snake
"""

import numpy as np

from metta_fast.contracts.env import ActionSpec, Array, Leaf
from metta_fast.envs.c_env.definition import CEnv

CELL = 32
GROUND, LINE, FOOD, HEAD = (24, 28, 32), (40, 46, 52), (232, 90, 79), (250, 220, 90)
TAIL, NECK = np.array((40, 90, 70)), np.array((95, 200, 140))


def draw(obs: Array, state: Array) -> Array:
    """Draws the board, a square of CELL pixels for each cell; the body fades towards its end."""
    body, head, food = obs[0]
    size = len(body)
    colours = np.full((size, size, 3), GROUND)
    colours[body > 0] = TAIL + body[body > 0, None] * (NECK - TAIL)
    colours[head > 0], colours[food > 0] = HEAD, FOOD
    picture = np.kron(colours, np.ones((CELL, CELL, 1))).astype(np.uint8)
    picture[::CELL] = picture[:, ::CELL] = LINE
    return picture


env = CEnv(
    "snake",
    obs=lambda params: Leaf((3, params["size"], params["size"]), "float32", "vector"),
    action=ActionSpec("discrete", nvec=(4,)),
    params={"size": 8, "death_reward": -1.0},
    limits={"size": (4, 16)},
    stats=("eaten",),
    reward_threshold=lambda params: (
        params["size"] ** 2 / 2 - 3
    ),  # half of the board filled; three cells at the start
    lanes=True,
    render=draw,
)
