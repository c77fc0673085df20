"""Describes the game of breakout to metta_fast; its rules are in breakout.h.

metta-fast train env=breakout
"""

import numpy as np

from metta_fast.contracts.env import ActionSpec, Array, Leaf
from metta_fast.envs.c_env.definition import CEnv

FIELD = (288, 200)
SCALE = 2
"""Pixels of the picture to a pixel of the game."""
ROWS = ((200, 72, 72), (198, 108, 58), (180, 122, 48), (162, 162, 42), (72, 160, 72), (66, 72, 200))


def draw(obs: Array, state: Array) -> Array:
    """Draws the field at SCALE: wall, paddle, ball, and a mark for each fifth of the lives."""
    paddle, x, y, lives = obs[0, [0, 1, 2, 6]] * (FIELD[0], *FIELD, 5)
    picture = np.zeros((FIELD[1] * SCALE, FIELD[0] * SCALE, 3), np.uint8)

    def box(left: float, top: float, width: float, height: float, colour: tuple[int, int, int]) -> None:
        at = [max(0, round(edge * SCALE)) for edge in (top, top + height, left, left + width)]
        picture[at[0] : at[1], at[2] : at[3]] = colour

    for place in np.flatnonzero(obs[0, 9:]):
        row, column = divmod(int(place), 18)
        box(column * 16, 30 + row * 6, 15.5, 5.5, ROWS[row])
    box(paddle, 188, 36, 4, (200, 72, 72))
    box(x, y, 4, 4, (236, 236, 236))
    for mark in range(round(float(lives))):
        box(6 + 8 * mark, 8, 5, 5, (142, 142, 142))
    return picture


env = CEnv(
    "breakout",
    obs=Leaf((117,), "float32"),
    action=ActionSpec("discrete", nvec=(3,)),
    params={"repeat": 4, "lives": 5},
    limits={"repeat": (1, 16), "lives": (1, 100)},
    stats=("score", "bricks"),
    reward_threshold=800.0,  # of 864
    lanes=True,
    render=draw,
)
